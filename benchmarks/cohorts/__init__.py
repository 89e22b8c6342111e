"""Cohorts (consumer groups): what reading as a member costs, and how groups of Kafka and NATS do beside them.

`python -m benchmarks.cohorts own` compares with a plain read in the same run; `.. peers` runs one story of a
group with each system in turn.

    own         STREAM, CHECKPOINT and QUEUE beside a plain read of the same rows; acknowledgements a second
    story       a backlog, a steady flow, a member that joins, one that leaves, one that is killed
    figures     receipts of members -> rates, pauses, latencies, redeliveries
    receipts    what a member writes down of each message; outlives its death
    messages    rows of a message, and what they look like on a wire that knows no rows
    running     a server that runs, with the topic; on_ringfence, on_kafka, on_nats start one
    groups      the systems: how each is run and read, what it promises
    readers     inside a member: how each system is read
    member      a member as a process
    compare     all systems one after the other, a record, a table
"""
