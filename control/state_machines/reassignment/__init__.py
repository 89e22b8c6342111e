"""Move a partition from one owner or set of replicas to another.

coordinator         all open changes of one leader: orders for nodes now, entries to propose
move_phases         one change: observations of the leader in, orders and the next entry out
hold_decision       whether a move may hold the old owner now
messages            orders of the coordinator and answers of nodes
cleanup             a node's own steps after a change, derived from two states of its log
unclean_election    possible losses of an owner that is chosen without a majority
"""
