"""Cohorts (consumer groups): what reading as a member costs, and how groups of Kafka and NATS do beside them.

`python -m benchmarks.cohorts own` compares with a plain read in the same run; `.. peers` runs one story of a
group with each system in turn.

    reads       STREAM, CHECKPOINT and QUEUE beside a plain read of the same rows
    acks        acknowledgements a second, and what they cost on disk
    story       a backlog, a steady flow, a member that joins, one that leaves, one that is killed
    figures     receipts of members -> rates, pauses, latencies, redeliveries
    receipts    what a member writes down of each message; outlives its death
    messages    rows of a message, and what they look like on a wire that knows no rows
    groups      the systems: server, topic, producer, members, what they promise
    readers     inside a member: how each system is read
    member      a member as a process
    compare     all systems one after the other, a record, a table
"""
