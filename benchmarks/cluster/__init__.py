"""What a cluster of local processes costs, how fast it recovers, and what its changes do to producers.

python -m benchmarks.cluster [PART ...] [--json FILE]

commits    three members with the production control plane: metadata commits, one at a time and pipelined
elections  three whole nodes: kill -9 of the leader until another one leads and takes commands
calm       three whole nodes under full load of every core: elections that should not be
moves      gaps of moves and of hand-overs at 20 MB/s
failovers  kill -9 of an owner until its rows are acknowledged again
dips       full load before, during and after throttled moves: rates and latencies
chases     full load over 12, 6 and 3 partitions: does the copy of one that moves catch up
forwards   bytes that moves send against the least, CPU a forwarded byte against a follower's
routes     CPU a batch costs its owner before a move and after it
copies     three replicas on one machine against one
growth     one node becomes two, three, four under load
splits     gaps of splits, merges and repartitions beside those of moves, at 20 MB/s and at full load
doubled    64 partitions become 128 as one change
repartitions  random repartitions: the longest wait of a producer
"""
