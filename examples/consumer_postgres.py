"""A consumer keeps its positions in PostgreSQL, in one transaction with the rows: each row is there once.

pip install 'psycopg[binary]'
ringfence serve --data ./data &
TRIPS_DATABASE="dbname=trips" python examples/consumer_postgres.py      # as many of them as you like
"""

import os

import psycopg
import pyarrow as pa

import ringfence

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("fare", pa.float64())])
TABLES = (
    "create table if not exists trips (id bigint not null, fare double precision)",
    """create table if not exists positions
    (partition bigint primary key, token text, fencing_token numeric, next_row bigint)""",
)
# No row changes if a later reader of the partition has saved something, or if these rows are there: the
# reader before may save its last rows after this one has asked where to begin.
SAVE = """
insert into positions values (%(partition)s, %(token)s, %(fencing_token)s, %(end)s)
on conflict (partition) do update
set token = excluded.token, fencing_token = excluded.fencing_token, next_row = excluded.next_row
where positions.fencing_token <= excluded.fencing_token and positions.next_row <= %(first)s
"""


class NotSavedError(Exception):
    """The store has these rows, or another reader of the cohort has the partition by now."""


def load(partition: int) -> str | None:
    """What the store has of a partition; None: nothing."""
    with database.transaction():
        row = database.execute("select token from positions where partition = %s", (partition,)).fetchone()
    return None if row is None else str(row[0])


def save(batch: pa.RecordBatch, place: ringfence.ConsumerPlace) -> None:
    """Rows and position together, or neither."""
    with database.transaction(), database.cursor() as cursor:
        with cursor.copy("copy trips from stdin") as copy:
            for row in zip(*batch.to_pydict().values(), strict=True):
                copy.write_row(row)
        values = {
            "partition": place.partition,
            "token": place.token(),
            "fencing_token": place.fencing_token,
            "first": place.first_offset,
            "end": place.end_offset,
        }
        if cursor.execute(SAVE, values).rowcount != 1:
            raise NotSavedError(place)


database = psycopg.connect(os.environ.get("TRIPS_DATABASE", ""), autocommit=True)
with database.transaction():
    database.execute("select pg_advisory_xact_lock(1)")  # several may start together
    for table in TABLES:
        database.execute(table)


def main() -> None:
    with ringfence.connect() as client:  # RINGFENCE_ADDRESS, else tcp://127.0.0.1:7411
        client.create_topic("trips", schema=SCHEMA, key=["id"], partitions=4, exist_ok=True)
        if not client.count("trips"):
            with client.producer("trips") as producer:
                for first in range(0, 10_000, 100):
                    rows = {"id": range(first, first + 100), "fare": [7.5] * 100}
                    producer.send(pa.table(rows, schema=SCHEMA))
        with client.consumer("trips", cohort="postgres", mode="checkpoint", positions=load) as consumer:
            while (batch := consumer.next(timeout_s=5)) is not None:  # None: nothing came for 5 s
                assert consumer.place is not None
                try:
                    save(batch, consumer.place)
                except NotSavedError as error:
                    print("saved by another reader, or will be:", error)

    found = database.execute("select count(*), count(distinct id) from trips").fetchone()
    assert found is not None
    print(f"{found[0]} rows, {found[1]} different ones")
    database.close()


if __name__ == "__main__":
    main()
