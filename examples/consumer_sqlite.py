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
create table if not exists positions (
    partition integer primary key, token text not null, fencing_token integer not null,
    next_row integer not null
);
"""
# No row changes if a later reader of the partition has saved something, or if these rows are there: the
# reader before may save its last rows after this one has asked where to begin.
SAVE = """
insert into positions values (:partition, :token, :fencing_token, :end) on conflict (partition) do update
set token = excluded.token, fencing_token = excluded.fencing_token, next_row = excluded.next_row
where fencing_token <= excluded.fencing_token and next_row <= :first
"""


class NotSavedError(Exception):
    """The store has these rows, or another reader of the cohort has the partition by now."""


def load(partition: int) -> str | None:
    """What the store has of a partition; None: nothing."""
    row = database.execute("select token from positions where partition = ?", (partition,)).fetchone()
    return None if row is None else str(row[0])


def save(batch: pa.RecordBatch, place: ringfence.ConsumerPlace) -> None:
    """Rows and position together, or neither."""
    with database:
        database.executemany("insert into trips values (?, ?)", zip(*batch.to_pydict().values(), strict=True))
        values = {
            "partition": place.partition,
            "token": place.token(),
            "fencing_token": place.fencing_token,
            "first": place.first_offset,
            "end": place.end_offset,
        }
        if database.execute(SAVE, values).rowcount != 1:
            raise NotSavedError(place)


database = sqlite3.connect(os.environ.get("TRIPS_DATABASE", "trips.db"))
database.executescript(TABLES)


def main() -> None:
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
                except NotSavedError as error:
                    print("saved by another reader, or will be:", error)

    count, different = database.execute("select count(*), count(distinct id) from trips").fetchone()
    print(f"{count} rows, {different} different ones")


if __name__ == "__main__":
    main()
