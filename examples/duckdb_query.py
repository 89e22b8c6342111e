"""DuckDB queries a topic as it is read, batch by batch: nothing is kept that the query does not need."""

import duckdb
import pyarrow as pa

import ringfence

with ringfence.connect() as client:
    schema = pa.schema([pa.field("sensor", pa.int32(), nullable=False), pa.field("value", pa.float64())])
    client.create_topic("readings", schema=schema, key=["sensor"], partitions=4, exist_ok=True)
    with client.producer("readings") as producer:
        producer.send(pa.table({"sensor": [n % 7 for n in range(10_000)], "value": [1.0] * 10_000}, schema))
    rows = client.read("readings", columns=["sensor", "value"])
    print(duckdb.sql("SELECT sensor, count(*) AS n, sum(value) AS total FROM rows GROUP BY ALL ORDER BY ALL"))
