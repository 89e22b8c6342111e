"""Check conditions that hold for every state. Tests call these after each step; a violation ends the process.

`metadata`: members, topics, producers. `scopes`: commits and what they consumed. `changes`: open changes
of partitions and their leftovers.
`layouts`: layout changes, and the lineage of SEALED partitions. `cohorts`: consumer groups.
`layout_policy`: decisions of automatic splits and merges, which tests check.
"""
