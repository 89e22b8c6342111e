"""A member of a cohort as a process that a run kills and freezes: `log_member ADDRESSES KIND OPTIONS`.

Kinds: "stream" and "queue" acknowledge what they get; "checkpoint" saves it in a database; "transform" writes
it to another topic, a transaction for each chunk, and aborts some. Each says on stdout what it does, a JSON
object a line, until its stdin ends.

| line | says |
|---|---|
| given | rows of a batch, before anything is done with them: `values`, `keys`, where they are |
| told, acked, refused | an acknowledgement leaves; an owner has it; the lease or hold was over |
| acked, refused of "checkpoint" | the rows were saved; they were there, or another member has the partition |
| began, committed, aborted, lost | a transaction, with how many rows; its end, if it is known |
| again, error | an error after which it goes on; one that ends the process |
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import ringfence
from ringfence import ConsumerPlace
from ringfence.native.errors import RetriableError, RingfenceError
from tests.chaos.log_clients import SCHEMA, TIMEOUT_S, values_of
from tests.chaos.log_store import LogStore
from tests.checker.log_history import Values

GATHER_S: Final = 0.25
"""Batches of so long are acknowledged together: a member that is killed has rows in hand."""
ROWS_MAX: Final = 1_500
SAVED_TOGETHER: Final = 5
"""Batches that a process has in hand which does not save each of them alone."""
CHUNK_ROWS: Final = 600
CHUNK_S: Final = 0.5
ABORTED: Final = 0.1
"""Share of the transactions that the application aborts."""
ATTEMPTS_MAX: Final = 1_000_000
"""Of one process. An attempt's number is that of its process times this, plus its own."""
OUTPUT: Final = SCHEMA.append(pa.field("attempt", pa.int64(), nullable=False))

CALLS_SHOWN: Final = 6
"""Of the calls in which an error was raised, the innermost."""

Ends = threading.Event


def stream(client: ringfence.Client, options: dict[str, Any], ends: Ends) -> None:
    """Rows in order of each key."""
    on_truncated = "skip" if options["skips"] else "raise"
    with _opened(client, options, on_truncated=on_truncated) as consumer:
        while not ends.is_set():
            places = _gathered(consumer)
            # Of each hold the last place: it stands for all before it.
            last = {(place.partition, place.fencing_token): place for place in places}
            _acknowledge(consumer, last.values())


def queue(client: ringfence.Client, options: dict[str, Any], ends: Ends) -> None:
    """Rows on lease."""
    with _opened(client, options, mode="queue", rows_max=ROWS_MAX // 10, limit=100) as consumer:
        while not ends.is_set():
            _acknowledge(consumer, _gathered(consumer))


def checkpoint(client: ringfence.Client, options: dict[str, Any], ends: Ends) -> None:
    """Rows are saved with the position: batch for batch, or by every second process a few at a time."""
    gathers = options["life"] % 2 == 1
    with (
        LogStore(Path(options["store"])) as store,
        client.consumer(
            options["topic"],
            cohort=options["cohort"],
            mode="checkpoint",
            member=options["member"],
            takeover=True,
            positions=store.load,
            report=not gathers,
            ack_interval_s=0.05,
        ) as consumer,
    ):
        while not ends.is_set():
            taken = _taken(consumer, SAVED_TOGETHER if gathers else 1)
            for place, values, keys in taken:
                is_saved = store.save(place, options["member"], values, keys)
                say("acked" if is_saved else "refused", place)
            for place, _, _ in taken if gathers else ():
                consumer.report(place)


def _taken(consumer: ringfence.Consumer, most: int) -> list[tuple[ConsumerPlace, Values, Values]]:
    """Places of batches, with values and keys of their rows."""
    found = list[tuple[ConsumerPlace, Values, Values]]()
    while len(found) < most and (batch := consumer.next(GATHER_S)) is not None:
        at, place = time.monotonic(), consumer.place
        assert place is not None
        # Views end with the next batch.
        values, keys = values_of(batch), batch.column("key").to_numpy().copy()
        say("given", place, at=at, values=values.tolist(), keys=keys.tolist())
        found.append((place, values, keys))
    return found


def _opened(client: ringfence.Client, options: dict[str, Any], **more: Any) -> ringfence.Consumer:
    return client.consumer(
        options["topic"],
        cohort=options["cohort"],
        member=options["member"],
        ack="manual",
        takeover=True,
        ack_interval_s=0.05,
        **more,
    )


def _gathered(consumer: ringfence.Consumer) -> list[ConsumerPlace]:
    places, rows, end = list[ConsumerPlace](), 0, time.monotonic() + GATHER_S
    while rows < ROWS_MAX and (left_s := end - time.monotonic()) > 0:
        batch = consumer.next(left_s)
        at = time.monotonic()  # before anything else: the process may be frozen from here on
        if batch is None:
            break
        place = consumer.place
        assert place is not None
        say("given", place, at=at, values=values_of(batch).tolist(), keys=batch.column("key").to_pylist())
        places.append(place)
        rows += batch.num_rows
    return places


def _acknowledge(consumer: ringfence.Consumer, places: Iterable[ConsumerPlace]) -> None:
    """Say all before any is waited for, so that they leave together."""
    for place in places:
        say("told", place)
        _settled(consumer, place, wait=False)
    for place in places:
        if _settled(consumer, place, wait=True):
            say("acked", place)


def _settled(consumer: ringfence.Consumer, place: ConsumerPlace, *, wait: bool) -> bool:
    try:
        consumer.ack(place, wait=wait)
    except ringfence.MemberError:
        raise
    except ringfence.FencedError as error:
        if wait:
            say("refused", place, why=str(error))
        return False
    except ringfence.WaitTimeoutError:  # the owner may have it
        return False
    return True


# ---- consume, transform, publish ---------------------------------------------------------------------------


class _AbortError(Exception):
    """Raised inside a block to abort it."""


class Attempts:
    """Numbers of transactions, none of which another process has."""

    def __init__(self, life: int) -> None:
        self._next = life * ATTEMPTS_MAX
        self.dice = random.Random(life)

    def next(self) -> int:
        self._next += 1
        return self._next


def transform(client: ringfence.Client, options: dict[str, Any], ends: Ends, attempts: Attempts) -> None:
    """Copy rows to another topic, each once."""
    with _opened(client, options, idle_s=0.2) as consumer:
        for batches in consumer.chunks(CHUNK_ROWS, wait_s=CHUNK_S):
            if ends.is_set():
                return
            if batches:
                _copy(client, consumer, options["output"], batches, attempts)


def _copy(
    client: ringfence.Client,
    consumer: ringfence.Consumer,
    output: str,
    batches: list[pa.RecordBatch],
    attempts: Attempts,
) -> None:
    attempt, transaction = attempts.next(), None
    say("began", attempt=attempt, rows=sum(batch.num_rows for batch in batches))
    try:
        with client.transaction(output, consumed=consumer, timeout_s=TIMEOUT_S) as transaction:
            for batch in batches:
                transaction.send(_transformed(batch, attempt))
            if attempts.dice.random() < ABORTED:
                raise _AbortError  # noqa: TRY301 - what an application's block does
    except _AbortError:
        say("aborted", attempt=attempt)
    except ringfence.UnknownOutcomeError:
        assert transaction is not None
        _find_out(transaction, attempt)
    except ringfence.MemberError:
        raise
    except RingfenceError as error:
        say("lost", attempt=attempt, why=f"{type(error).__name__}: {error}")
    else:
        say("committed", attempt=attempt)


def _transformed(batch: pa.RecordBatch, attempt: int) -> pa.RecordBatch:
    columns = [pa.array(column.to_pylist(), column.type) for column in batch.columns]
    return pa.record_batch([*columns, pa.array([attempt] * batch.num_rows, pa.int64())], schema=OUTPUT)


def _find_out(transaction: ringfence.Transaction, attempt: int) -> None:
    """Repeat the commit until it tells."""
    while True:
        try:
            transaction.commit()
        except ringfence.UnknownOutcomeError:
            time.sleep(0.2)
        except RingfenceError as error:
            say("lost", attempt=attempt, why=f"{type(error).__name__}: {error}")
            return
        else:
            say("committed", attempt=attempt)
            return


# ---- the process -------------------------------------------------------------------------------------------


def say(what: str, place: ConsumerPlace | None = None, **values: Any) -> None:
    line = {"what": what, "at": time.monotonic(), **values}
    if place is not None:
        line |= {
            "partition": place.partition,
            "first": place.first_offset,
            "end": place.end_offset,
            "token": place.fencing_token,
        }
    print(json.dumps(line), flush=True)


def main() -> None:
    addresses, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    ends, attempts = threading.Event(), Attempts(options["life"])
    kinds: dict[str, Callable[[ringfence.Client], None]] = {
        "stream": lambda client: stream(client, options, ends),
        "queue": lambda client: queue(client, options, ends),
        "checkpoint": lambda client: checkpoint(client, options, ends),
        "transform": lambda client: transform(client, options, ends, attempts),
    }

    def wait_for_end() -> None:
        sys.stdin.read()
        ends.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    while not ends.is_set():
        try:
            with ringfence.connect(addresses, timeout_s=TIMEOUT_S) as client:
                kinds[kind](client)
        except RetriableError as error:  # no node answers just now
            say("again", why=f"{type(error).__name__}: {error}")
            ends.wait(0.2)
        except Exception as error:  # noqa: BLE001 - the run shows it
            say("error", why="".join(traceback.format_exception(error, limit=-CALLS_SHOWN)).strip())
            return


if __name__ == "__main__":
    main()
