"""Frozen values of the metadata log. They have no behaviour except checks of their own form.

START HERE: `entries.Entry` is what the log replicates, `commands.Command` its content.
`state.MetadataState` follows from all entries, and `results.Result` is the result of one entry.
`conversions` opens older states.

Field names, tags and the order of fields are part of files, hashes and messages: never change them.

    ids, names, characters, text                    identities; names that users choose; texts for users
    ranges, layout, schemas, topics                 slot ranges, a topic's partitions and schemas, the topic
    nodes, node_commands                            members and the ring, and commands about them
    reassignments, reassignment_commands            one partition's change of owner or replicas
    log_end                                         the end of a partition's log
    layout_changes, layout_commands                 partitions split, merge, or are repartitioned
    rebalances, rebalance_commands                  runs of moves
    cohorts, cohort_commands                        consumer groups, their members and progress
    scopes, tokens, requests                        writers of transactions; access; keys of requests
    base                                            the base of all commands: a tagged MessagePack map
    counts                                          figures of partitions: unknown is null, never 0
"""
