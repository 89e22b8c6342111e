"""A process that reads a topic as a member of a cohort and writes each row to another topic, exactly once.

It says on stdout what it does, a JSON object a line: {"rows": 50} after a commit, {"lost": ..} when a
transaction was refused and its rows come again, {"at": "claimed"} where it stands still, {"error": ..} at
the end. A test may kill it at any time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

import ringfence
from ringfence.consumer.taking import Taking
from ringfence.scopes import Scopes
from tests.harness import forks
from tests.harness.member import ROOT, STOP_S

SOURCE, TARGET = "in", "out"


@dataclass
class Transformer:
    """The process, and what it said. `stands_at`: "staged", "claimed" or "sent", in its first transaction."""

    address: str
    name: str
    stands_at: str = ""
    rows: int = 50
    committed: int = 0
    lost: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    place: str = ""

    def start(self) -> Self:
        values = {"member": self.name, "stands_at": self.stands_at, "rows": self.rows}
        self.process = forks.start(
            [sys.executable, "-m", "tests.harness.transformer", self.address, json.dumps(values)],
            folder=ROOT, has_stdin=True, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # a line that kill -9 has cut
            if "rows" in said:
                self.committed += said["rows"]
            elif "lost" in said:
                self.lost.append(said["lost"])
            elif "at" in said:
                self.place = said["at"]
            else:
                self.errors.append(said["error"])

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._gone()

    def stop(self) -> None:
        """It ends its transaction, leaves the cohort, and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._gone()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def _gone(self) -> None:
        self.process.wait(STOP_S)
        self._reader.join(STOP_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def check_output(client: ringfence.Client) -> int:
    """Each row of the source is in the target once, and rows of a key are in order; how many there are."""
    expected, found = rows_by_key(client, SOURCE), rows_by_key(client, TARGET)
    assert found == expected, {
        key: (found[key], ids) for key, ids in expected.items() if found.get(key) != ids
    }
    return sum(map(len, found.values()))


def rows_by_key(client: ringfence.Client, topic: str) -> dict[int, list[int]]:
    """The ids of each key in the order of reading. A key's partitions come after those they were made of."""
    found: dict[int, list[int]] = defaultdict(list)
    for batch in client.read(topic):
        for key, number in zip(
            batch.column("producer").to_pylist(), batch.column("id").to_pylist(), strict=True
        ):
            found[key].append(number)
    return dict(found)


def count_rows(client: ringfence.Client, topic: str) -> int:
    return sum(batch.num_rows for batch in client.read(topic))


# ---- the process ----------------------------------------------------------------------------------------


def stand_at(place: str) -> None:
    """Stand still at this place of the first transaction, until the process is killed."""

    def stand() -> None:
        say(at=place)
        time.sleep(3600)

    commit, take = Scopes.commit, Taking.take

    def stands_before_commit(*given: Any, **values: Any) -> bool:
        stand()
        return commit(*given, **values)

    def stands_after_commit(*given: Any, **values: Any) -> bool:
        commit(*given, **values)
        stand()
        return True

    def stands_before_claim(taking: Taking) -> None:
        stand()
        take(taking)

    if place == "staged":
        Taking.take = stands_before_claim  # type: ignore[method-assign, assignment]
    elif place == "claimed":
        Scopes.commit = stands_before_commit  # type: ignore[method-assign]
    elif place == "sent":
        Scopes.commit = stands_after_commit  # type: ignore[method-assign]


def transform(address: str, member: str, rows: int) -> None:
    """Copy chunks, each in a transaction, until stdin is closed."""
    ends = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ends.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with (
        ringfence.connect(address, timeout_s=30) as client,
        client.consumer(
            SOURCE, cohort="c", member=member, ack="manual", idle_s=0.2, takeover=True
        ) as consumer,
    ):
        for batches in consumer.chunks(rows, wait_s=0.2):
            if ends.is_set():
                return
            if batches:
                copy_all(client, consumer, batches)


def copy_all(client: ringfence.Client, consumer: ringfence.Consumer, batches: list[pa.RecordBatch]) -> None:
    transaction: ringfence.Transaction | None = None
    try:
        with client.transaction(TARGET, consumed=consumer) as transaction:
            for batch in batches:
                # New arrays, as a transformation makes them.
                transaction.send(
                    pa.record_batch([pa.array(one.to_pylist(), one.type) for one in batch], batch.schema)
                )
    except ringfence.UnknownOutcomeError:
        assert transaction is not None
        find_out(transaction)
    except ringfence.MemberError:
        raise
    except (ringfence.FencedError, ringfence.RetriableError, ringfence.ConflictError) as error:
        say(lost=f"{type(error).__name__}: {error}")
        return
    assert transaction is not None
    say(rows=transaction.rows)


def find_out(transaction: ringfence.Transaction) -> None:
    """Repeat the commit until it tells."""
    while True:
        try:
            transaction.commit()
        except ringfence.UnknownOutcomeError:
            time.sleep(0.2)
        except ringfence.RingfenceError as error:
            say(lost=f"{type(error).__name__}: {error}")
            return
        else:
            return


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    address, given = sys.argv[1:]
    values = json.loads(given)
    stand_at(values["stands_at"])
    try:
        transform(address, values["member"], values["rows"])
    except Exception as error:  # noqa: BLE001  # the test looks at it
        say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
