"""Run several moves.

runner      the leader's next entry of a run
plans       the moves of a run before it starts
policy      start a run without an operator, by load
loads       rates of partitions from counters
run_rates   rates and latencies before, during and after each run
"""
