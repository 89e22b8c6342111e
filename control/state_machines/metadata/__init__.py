"""Apply metadata commands to the state, the same way on every node.

state_machine               validate(state, command), apply(state, entry)
cluster, nodes              commands about the cluster and its members
ring_commands               commands about the placement ring
ring_decisions              the ring's next change, proposed by the leader
topics, topic_creation      commands about topics; the creation of a topic
producers                   commands about named producers
scopes, scope_owners        commands about scopes; the tokens that may use a scope
consumed_ranges             positions of a cohort in the commit of a scope: checks, and what is due
tokens, data_socket_rights  commands about tokens; rights on the data socket
rebalances, move_records    commands about runs of moves, and their records
reassignments               PREPARE, HOLD, COMMIT, OPEN, CLEAN, ABORT of one partition's move
reassignment_rules          effects of these steps
reassignment_checks         checks of these steps
layouts                     PREPARE, HOLD, COMMIT, OPENED, FINALIZE, ABORT of layout changes, and the prune
layout_rules                effects of these steps
layout_checks, prune_checks checks of these steps
sealed_partitions           owners of sealed partitions: failures, moves, an accepted loss
auto_layout                 settings of automatic splits and merges
member_proofs               proofs of member sessions, and what they are bound to
drained                     registered readers that are through a sealed partition
cohorts                     commands of consumer groups: members, slices, progress, seeks
cohort_rules                effects of prunes and deletions on them
cohort_checks               checks of their commands
cohort_lineage              where a cohort begins, what it is through; heirs of gates
cohort_starts               the target of a seek, resolved over the layout
node_checks, topic_checks   checks of descriptions
config                      limits of a cluster
refusals                    results of refused commands
etags, state_hash           version tags for administrators; the hash that nodes compare
replica_counts              replicas and owned partitions of each node
table_progress              the state of a topic's table at the nodes
"""
