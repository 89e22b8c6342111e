"""Runs of moves.

runner   the leader's next entry of a run
plans    what a run would move
policy   whether the leader starts a run by itself
loads    rates of partitions from counters
"""
