"""Layout changes at a node and at the leader.

engine         the engine's calls for layout changes
inheritance    what a child's owner fetches and appends, source by source
late_inheritance  inherits again what an owner's log lacks after an accepted loss
sources        what a source's owner tells other nodes of its table, gates and log
participant    executes the leader's orders of layout changes
order_sender   sends orders and questions to the nodes that they are for
leader         runs the coordinator on the leader: orders, entries, prunes
auto           runs the policy of automatic splits and merges on the leader
counts, times  layout changes by their ends; phases and gaps, for metrics and operators
parts          builds all of these
"""
