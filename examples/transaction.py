"""All rows of a block come at once, over partitions and topics, or none does; run again, none twice.

ringfence serve --data ./data &
python examples/transaction.py
"""

import pyarrow as pa

import ringfence

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.float64())])

with ringfence.connect() as client:  # RINGFENCE_ADDRESS, else tcp://127.0.0.1:7411
    for topic in ("payments", "audit"):
        client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=4, exist_ok=True)
    day = pa.table({"id": range(1000), "amount": [1.5] * 1000}, schema=SCHEMA)
    for run in ("first", "second"):  # the second is what a scheduler does after a crash
        with client.transaction("payments", scope="nightly-load", epoch=20260131) as t:
            t.send(day)
            t.send(day.slice(0, 10), topic="audit")
        print(f"{run} run: {t.rows} rows", "(was committed before)" if t.already else "")
    print(client.count("payments"), "payments,", client.count("audit"), "in the audit")
