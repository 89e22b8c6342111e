"""Move a partition from one owner or set of replicas to another.

coordinator         all moves of one leader: orders to nodes now, entries to propose
change              one move: what the leader has observed in, orders and the next entry out
messages            orders of the coordinator and answers of nodes
cleanup             what a node does without being asked, derived from two states
unclean_election    what an owner chosen without a majority may lose
"""
