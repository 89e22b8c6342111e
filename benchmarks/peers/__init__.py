"""Other systems measured beside ringfence: Kafka, NATS JetStream, Redis. START HERE.

    python -m benchmarks.peers install    what a run needs, pinned, into BENCHMARKS_PEERS (.data/peers)
    python -m benchmarks.peers status     what is there, and what is missing
    python -m benchmarks --peers          one node each, durable before the answer, beside ours and the limit

    python -m benchmarks.peers cluster    three brokers beside three of our nodes: moves, killed leaders

    installed.py      where programs are; MissingError says how to get one
    install.py        Maven Central, the Go module proxy, Debian, PyPI: nothing is fetched at any other time
    process.py        a server as a child that never outlives the run
    kafka_server.py   a broker in KRaft mode
    kafka_cluster.py  three of them: leaders, replicas, kills; default and tuned settings
    kafka_steady.py   the steady producer of benchmarks.cluster, into Kafka
    kafka_moves.py    the twins of benchmarks/cluster/moves.py and failovers.py
    compare.py        ours and Kafka in turn: the record and the table

Engines of the ingest race are in `benchmarks/engines`, their senders in `benchmarks/senders`. All of it is
optional: no client is imported where its peer does not take part.
"""
