"""Consumers in the mix of the log checker, of each mode, and consume-transform-publish, and their judgement.

| cohort | of | what must hold |
|---|---|---|
| audit | the topic whose layout changes, STREAM | `checker.cohorts`; all rows are acknowledged in the end |
| mail | the same, QUEUE | the same of leases; `LeaseRecord` has what the design allows |
| clean | the same, into the topic "clean" | `checker.transformed`: each row once, of aborted ones nothing |
| store | the same, CHECKPOINT into a database | of what was saved as of what audit was given, each row once |
| tail | the truncated topic, STREAM that skips | as audit; what it was not given was truncated before |
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

import ringfence
from ringfence.native.errors import RingfenceError
from tests.chaos.cohort_record import Part
from tests.chaos.goals import CohortCounts, CohortGoals, missing_in_lineage
from tests.chaos.log_cast import Cast
from tests.chaos.log_clients import values_of
from tests.chaos.log_member import OUTPUT
from tests.chaos.log_owners import OwnerWatch
from tests.chaos.log_record import (
    LeaseRecord,
    TopicRows,
    acknowledged,
    handovers,
    not_worked_on,
    stream_history,
    unsaid,
)
from tests.chaos.log_store import LogStore, other_chunks, saved_lines
from tests.chaos.mover import REPLICAS
from tests.checker import cohorts, transformed
from tests.checker.cohort_history import Gone
from tests.checker.log_history import History, Outcome, Values
from tests.checker.transformed import Output, Transformed

SETTLED_S: Final = 240.0
"""For all that is left: a killed member's partitions wait for its grace period, and a hold behind it."""
RENEWED_S: Final = 20.0
"""What is left then waits for members that have left for minutes: others come in their place."""
LOOK_S: Final = 0.5
CLEAN: Final = "clean"
CLEAN_PARTITIONS: Final = 4
LONG_S: Final = 200.0
"""In a run that is longer, members are frozen beyond their grace period, too."""
SHOWN_MAX: Final = 10
"""Anomalies of one cohort that are told: of a broken promise there are often thousands."""
LATE: Final = ("missing: ", "are settled, and no member", "were never given", "is settled to")
"""What is found of rows that cohorts had not reached when a member's error ended the run."""


class Cohorts:
    """All consumers of a run."""

    def __init__(
        self, addresses: str, topic: str, cut_topic: str, folder: Path, seed: int, seconds: float
    ) -> None:
        self._store = folder / "store.db"
        self._addresses, self._topic, self._cut_topic = addresses, topic, cut_topic
        self._goals = CohortGoals.of(seconds)
        with ringfence.connect(addresses, timeout_s=60) as client:
            client.create_topic(
                CLEAN, schema=OUTPUT, key=["key"], partitions=CLEAN_PARTITIONS, replication=REPLICAS
            )
        casts: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
            ("audit", "stream", 3, {"topic": topic, "skips": False}),
            ("mail", "queue", 2, {"topic": topic}),
            ("clean", "transform", 2, {"topic": topic, "output": CLEAN}),
            ("store", "checkpoint", 2, {"topic": topic, "store": str(self._store)}),
            ("tail", "stream", 2, {"topic": cut_topic, "skips": True}),
        )
        self.casts = {
            cohort: Cast(
                addresses,
                kind,
                {"cohort": cohort, **options},
                count,
                seed * 100 + number,
                is_long=seconds > LONG_S,
            )
            for number, (cohort, kind, count, options) in enumerate(casts)
        }
        self._owners = OwnerWatch(addresses, topic)
        self._told = list[str]()

    def start(self) -> None:
        self._owners.start()
        for cast in self.casts.values():
            cast.start()

    def stop(self) -> None:
        """No more harm to members, after one death in each cohort."""
        for cast in self.casts.values():
            cast.stop()

    def calm(self) -> None:
        """Wait until no member is harmed any more."""
        for cast in self.casts.values():
            cast.calm()

    def is_broken(self) -> bool:
        return any(cast.errors() for cast in self.casts.values())

    def finish(self, cut: History) -> list[str]:
        """After the last row was written: all that is wrong. `cut`: of the truncated topic."""
        is_broken = self.is_broken()
        wrong = [] if is_broken else self._until_settled()
        self._owners.finish()
        self._each(Cast.finish)
        wrong += [error for cast in self.casts.values() for error in cast.errors()]
        wrong += [f"the watch of owners: {error!r}" for error in self._owners.failure]
        with ringfence.connect(self._addresses, timeout_s=120) as client:
            rows, tail_rows = rows_of(client, self._topic), rows_of(client, self._cut_topic)
            parts = parts_of(client, self._topic, rows)
            output = output_of(client)
        given = {line.partition for line in self.casts["audit"].lines() if line.what == "given"}
        wrong += too_little(missing_in_lineage(parts, given, len(self._owners.changes)))
        gone = [(one.begun, Gone(one.partition, one.before)) for one in cut.truncates if one.before]
        for cohort, found in (
            ("audit", self._stream("audit", rows, parts, [])),
            ("mail", self._queue("mail", rows)),
            ("clean", self._transformed("clean", rows, output)),
            ("store", self._saved("store", rows, parts)),
            ("tail", self._stream("tail", tail_rows, [], gone)),
        ):
            # What is missing in a run that was broken off is only late.
            judged = [one for one in found if not (is_broken and any(late in one for late in LATE))]
            wrong += [f"{cohort}: {one}" for one in judged[:SHOWN_MAX]]
            wrong += [f"{cohort}: {len(judged) - SHOWN_MAX} more"] if len(judged) > SHOWN_MAX else []
        return wrong

    def _each(self, do: Callable[[Cast], None]) -> None:
        """With all cohorts at the same time."""
        with ThreadPoolExecutor(len(self.casts)) as pool:
            list(pool.map(do, self.casts.values()))

    def tell(self) -> None:
        """The summary."""
        for line in self._told:
            print(line)

    def keep(self, folder: Path) -> None:
        """What members said, a file for each cohort; when owners changed."""
        for cohort, cast in self.casts.items():
            lines: list[object] = [*cast.lines(), *cast.away]
            lines += [(member.id, member.attempts) for member in cast.members if member.attempts]
            (folder / f"{cohort}.jsonl").write_text(
                "".join(f"{json.dumps(line, default=str)}\n" for line in lines)
            )
        shutil.copy(self._store, folder)
        (folder / "owners.json").write_text(json.dumps(self._owners.changes.by_partition()))

    # ---- the end ----

    def _until_settled(self) -> list[str]:
        """Wait until owners say that nothing is left; what is left after too long."""
        begun, left, is_renewed = time.monotonic(), dict[str, str](), False
        with ringfence.connect(self._addresses, timeout_s=30) as client:
            while time.monotonic() < begun + SETTLED_S:
                left = {one: text for one, cast in self.casts.items() if (text := self._left(client, cast))}
                if not left or self.is_broken():
                    break
                if not is_renewed and time.monotonic() > begun + RENEWED_S:
                    is_renewed = True
                    self._each(Cast.renew)
                time.sleep(LOOK_S)
        return [f"{cohort}: not settled within {SETTLED_S:.0f} s: {text}" for cohort, text in left.items()]

    def _left(self, client: ringfence.Client, cast: Cast) -> str:
        try:
            described = client.admin.cohort(cast.topic, cast.cohort)
        except RingfenceError as error:
            return f"{error!r}"
        open_ones = [one for one in described.partitions if one.lag_rows != 0]
        return "" if not open_ones else f"{len(open_ones)} partitions, first {open_ones[0]}"

    # ---- the judgement ----

    def _stream(
        self, cohort: str, rows: TopicRows, parts: list[Part], gone: list[tuple[float, Gone]]
    ) -> list[str]:
        cast = self.casts[cohort]
        lines, found = cast.lines(), other_rows(cast, rows)
        history = stream_history(lines, parts, rows.key_of, rows.ends, gone)
        found += map(str, cohorts.anomalies(history))
        found += [] if gone else unsaid(lines, rows.ends)
        counts = CohortCounts(acknowledged(lines, is_cumulative=True), handovers(lines), cast.deaths)
        self._tell(cast, f"{counts.acknowledged:,} rows acknowledged, {counts.handovers} hand-overs")
        return [*found, *too_little(self._goals.missing(cohort, counts))]

    def _saved(self, cohort: str, rows: TopicRows, parts: list[Part]) -> list[str]:
        cast = self.casts[cohort]
        with LogStore(self._store) as store:
            chunks = store.chunks()
        lines, found = saved_lines(chunks), [*other_rows(cast, rows), *other_chunks(chunks, rows)]
        found += map(str, cohorts.anomalies(stream_history(lines, parts, rows.key_of, rows.ends)))
        found += unsaid(lines, rows.ends)
        counts = CohortCounts(acknowledged(lines, is_cumulative=True), handovers(lines), cast.deaths)
        refused = sum(line.what == "refused" for line in cast.lines())
        self._tell(
            cast,
            f"{counts.acknowledged:,} rows saved, {counts.handovers} hand-overs, {refused} times not saved",
        )
        return [*found, *too_little(self._goals.missing(cohort, counts))]

    def _queue(self, cohort: str, rows: TopicRows) -> list[str]:
        cast = self.casts[cohort]
        lines, found = cast.lines(), other_rows(cast, rows)
        record = LeaseRecord(self._owners.changes, cast.away)
        found += map(str, cohorts.anomalies(record.take(lines)))
        found += not_worked_on(lines, rows.ends)
        done = acknowledged(lines, is_cumulative=False)
        self._tell(
            cast,
            f"{done:,} rows acknowledged, {record.repeated:,} came twice as allowed, "
            f"{len(self._owners.changes):,} changes of owners",
        )
        goals = dataclasses.replace(self._goals, handovers=0)
        return [*found, *too_little(goals.missing(cohort, CohortCounts(done, 0, cast.deaths)))]

    def _transformed(self, cohort: str, rows: TopicRows, output: dict[int, Output]) -> list[str]:
        cast = self.casts[cohort]
        attempts = {number: one for member in cast.members for number, one in member.attempts.items()}
        found = list(map(str, transformed.anomalies(Transformed(rows.values(), output, attempts))))
        outcomes = Counter(attempt.outcome for attempt in attempts.values())
        count = sum(len(part.values) for part in output.values())
        ends = ", ".join(f"{number} {outcome.value}" for outcome, number in outcomes.items())
        lost = sum((member.lost for member in cast.members), Counter[str]())
        self._tell(cast, f"{count:,} rows transformed, transactions: {ends}, lost to {dict(lost)}")
        goals = dataclasses.replace(self._goals, handovers=0)
        found += too_little(goals.missing(cohort, CohortCounts(count, 0, cast.deaths)))
        if not outcomes[Outcome.REFUSED]:
            found += too_little([f"no transaction of {cohort} was aborted or refused"])
        return found

    def _tell(self, cast: Cast, text: str) -> None:
        frozen = sum(not one.ends for one in cast.away)
        again = sum((member.again for member in cast.members), Counter[str]())
        told = f"{cast.cohort} ({cast.kind} of {cast.topic}): {text}; {len(cast.members)} processes, "
        self._told.append(
            f"{told}{cast.deaths} killed, {frozen} times frozen, begun again after {dict(again)}"
        )


def too_little(lines: list[str]) -> list[str]:
    return [f"too little happened: {line}" for line in lines]


def other_rows(cast: Cast, rows: TopicRows) -> list[str]:
    """Batches that are not what the topic has at their place."""
    found = list[str]()
    for member in cast.members:
        given = (line for line in member.lines if line.what == "given")
        for line, (values, keys) in zip(given, member.rows, strict=True):
            text = rows.note(line.partition, line.first, values, keys)
            found += [] if text is None else [f"other rows: {member.id} was given {text}"]
    return found


def rows_of(client: ringfence.Client, topic: str) -> TopicRows:
    """The final read of a topic."""
    found = list[tuple[int, int, Values, Values]]()
    with client.read(topic) as reader:
        for batch in reader:
            where = reader.place
            assert where is not None
            keys = batch.column("key").to_numpy()
            found.append((where.partition, where.first_offset, values_of(batch), keys))
    rows = TopicRows({partition: told.end for partition, told in client.end_offsets(topic).items()})
    for one in found:
        text = rows.note(*one)
        assert text is None, text
    return rows


def parts_of(client: ringfence.Client, topic: str, rows: TopicRows) -> list[Part]:
    """The lineage of a topic in the end."""
    return [
        Part(
            part.partition, tuple(part.parents), None if part.state == "ACTIVE" else rows.ends[part.partition]
        )
        for part in client.layout(topic).partitions.values()
    ]


def output_of(client: ringfence.Client) -> dict[int, Output]:
    """Rows of the transformed topic by partition."""
    found: dict[int, list[tuple[Values, ...]]] = defaultdict(list)
    with client.read(CLEAN) as reader:
        for batch in reader:
            where = reader.place
            assert where is not None
            columns = (batch.column(name).to_numpy() for name in ("key", "attempt"))
            found[where.partition].append((values_of(batch), *columns))
    return {one: Output(*map(np.concatenate, zip(*parts, strict=True))) for one, parts in found.items()}
