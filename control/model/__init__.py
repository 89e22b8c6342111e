"""Frozen values of the metadata log. They hold no behaviour but checks of their own shape.

START HERE: `entries.Entry` is what the log replicates, `commands.Command` what it says, `state.MetadataState`
what follows from all entries, `results.Result` what one entry gave. `conversions` opens older states.

    ids, names, characters, words    identities; names that users choose; texts for users
    ranges, layout, schemas, topics  slot ranges, partitions of a topic, its schemas, the topic
    nodes, node_commands             members and the ring, and commands about them
    changes, change_commands         one partition's step to another owner or other replicas
    rebalances, rebalance_commands   runs of moves
    scopes, tokens, requests         writers of transactions; access; keys and conditions of requests
    base                             what all commands share: a tagged MessagePack map
    counts                           figures of partitions: unknown is null, never 0
"""
