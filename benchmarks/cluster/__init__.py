"""What a cluster of three local processes costs and how fast it recovers.

python -m benchmarks.cluster [commits] [elections] [calm] [--json FILE]

commits    three members with the production control plane: metadata commits, one at a time and pipelined
elections  three whole nodes: kill -9 of the leader until another one leads and takes commands
calm       three whole nodes under full load of every core: elections that should not be
"""
