"""Choose nodes for replicas and owners. Deterministic.

placement         replicas of a new topic's partitions
planner           moves from the current placement to a balanced one
draft_placement   a mutable copy of a placement: current load, target load, unassigned replicas
replica_round     one round: take replicas from overloaded nodes, assign them to others
leader_balance    balance ownership among existing replicas; no data moves
zones             spread replicas of one partition over zones
quotas            divide a number by weights
"""
