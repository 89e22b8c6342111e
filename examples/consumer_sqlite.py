"""A consumer keeps its positions in SQLite, in one transaction with the rows: each row is there once.

ringfence serve --data ./data &
python examples/consumer_sqlite.py      # kill it wherever you like, and run it again
"""

import os
import sqlite3

import pyarrow as pa

import ringfence

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("fare", pa.float64())])
TABLES = """
create table if not exists trips (id integer not null, fare real);
create table if not exists positions
    (partition integer primary key, token text not null, fencing_token integer not null);
"""
# A reader that lost the partition has a lower token than its successor has written: then no row changes.
SAVE = """
insert into positions values (?, ?, ?) on conflict (partition) do update
set token = excluded.token, fencing_token = excluded.fencing_token
where fencing_token <= excluded.fencing_token
"""


class PartitionLostError(Exception):
    """Another reader of the cohort has the partition by now."""


def load(partition: int) -> str | None:
    """What the store has of a partition; None: nothing."""
    row = database.execute("select token from positions where partition = ?", (partition,)).fetchone()
    return None if row is None else str(row[0])


def save(batch: pa.RecordBatch, place: ringfence.ConsumerPlace) -> None:
    """Rows and position together, or neither."""
    with database:
        database.executemany("insert into trips values (?, ?)", zip(*batch.to_pydict().values(), strict=True))
        if database.execute(SAVE, (place.partition, place.token(), place.fencing_token)).rowcount != 1:
            raise PartitionLostError(place)


database = sqlite3.connect(os.environ.get("TRIPS_DATABASE", "trips.db"))
database.executescript(TABLES)

with ringfence.connect() as client:  # RINGFENCE_ADDRESS, else tcp://127.0.0.1:7411
    client.create_topic("trips", schema=SCHEMA, key=["id"], partitions=4, exist_ok=True)
    if not client.count("trips"):
        with client.producer("trips") as producer:
            for first in range(0, 10_000, 100):
                rows = {"id": range(first, first + 100), "fare": [7.5] * 100}
                producer.send(pa.table(rows, schema=SCHEMA))
    with client.consumer("trips", cohort="sqlite", mode="checkpoint", positions=load) as consumer:
        while (batch := consumer.next(timeout_s=5)) is not None:  # None: nothing came for 5 s
            assert consumer.place is not None
            try:
                save(batch, consumer.place)
            except PartitionLostError as lost:
                print("its new reader has these rows:", lost)

count, different = database.execute("select count(*), count(distinct id) from trips").fetchone()
print(f"{count} rows, {different} different ones")
