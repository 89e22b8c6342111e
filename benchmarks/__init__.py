"""Benchmarks: START HERE.

`python -m benchmarks` runs engines side by side, interleaved, and prints each one's ratio to the limit of the
same run. What a run consists of:

    workloads/*.toml   what is sent, and how many rows must be stored afterwards       -> workload.py
    dataset.py         TPC-H lineitem and a two-column table, as files of publish bodies
    native/            probe (the limit) and loadgen (the sender), Rust                -> native_build.py
    engines/           one module each: ours, limit, pyzmq_router, flight              -> engines/base.py
    servers/           the peers that are Python processes
    peers/             Kafka, NATS, Redis: how they get here; `--peers` lets them take part
    runner.py          turns in the order A B C A B C ..., medians, spread, ratios
    report.py          rows as JSON, the table as Markdown, record/<machine>/<date>
    resources.py       counted resources: calls, faults, syncs, instructions
    micro/             pytest-benchmark: the steps of a batch, one by one
    cluster/           whole nodes as processes, by the harness of the tests           -> tests/harness

Sender and server are two processes, and one machine holds both and the disk. Absolute figures therefore say
little; ratios within one run say much. Cold guest memory makes buffered writes three times slower, so memory
is touched before the first turn and every turn begins with unmeasured requests; the record says so.
"""
