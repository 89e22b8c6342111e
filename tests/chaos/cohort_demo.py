"""`make demo-cohort`: three members of a STREAM cohort and a queue work while nodes and members die.

Real processes: three nodes, a producer, members. An owner is killed, a partition is split, the leader
stands still (SIGSTOP), a member is killed and another one frozen; the long form kills an owner amid a
change of the layout, and all nodes at the same time. What members said is judged by
`tests.checker.cohorts`: what was acknowledged came once, all else again, rows of each key in their order.
Exit code 1: there is an anomaly, or something did not come about.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import ringfence
from ringfence.control.cli.output import show_table
from ringfence.native.errors import AlreadyExistsError, ConflictError, RetriableError, RingfenceError
from tests.chaos.cohort_progress import SettledKeys
from tests.chaos.cohort_record import (
    LATE_S,
    Loss,
    Part,
    QueueRecord,
    last_deliveries,
    other_rows,
    rows_again,
    stream_history,
)
from tests.checker.cohorts import anomalies
from tests.harness.admin_http import ask, with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import KEYS, Feed, Rows, publish
from tests.harness.member import Member
from tests.harness.processes import SCHEMA, read_ids, until
from tests.harness.queue_member import QueueMember, acked_rows

TOPIC: Final = "orders"
STREAM: Final = "billing"
QUEUE: Final = "mails"
PARTITIONS: Final = 4
GRACE_S: Final = 12.0
"""The least that a node takes: a member may hold partitions for 10 s."""
STATE_S: Final = 60.0
"""For a state to come about, on a machine with ten times its load."""
END_S: Final = 180.0
"""For all that is left: an election, a grace period and the holds behind it may be under way."""
PAUSE_S: Final = 0.2
"""Between two rounds: a record in each partition, of which a member of the queue does some 70 a second."""
WORK_S: Final = 0.01
"""Between a batch and its acknowledgement: a member that is killed has rows in hand."""
SHOWN_MAX: Final = 20
"""Anomalies that are printed: of a broken promise there are often thousands."""


class Scene(NamedTuple):
    """A line of the result.

    `seconds`: until rows of each key that were sent after the fault are acknowledged.
    """

    title: str
    seen: str
    seconds: float


class Counts:
    """What was done to processes, and when."""

    def __init__(self) -> None:
        self.nodes_killed = self.nodes_frozen = self.members_frozen = self.changes = 0
        self.losses: list[Loss] = []
        self.members_killed: dict[str, float] = {}


class CohortDemo:
    """The story, scene by scene; then the judgement.

    Scenes raise AssertionError if something does not come about.
    """

    def __init__(self, three: ThreeNodes, running: ExitStack, client: ringfence.Client, door: str) -> None:
        """`door`: where a node serves HTTP."""
        self._three, self._running, self._client, self._door = three, running, client, door
        self.members: list[Member] = []
        self.queue: list[QueueMember] = []
        self.counts = Counts()
        self.stored: dict[int, Rows] = {}
        self.unsaid = set[tuple[int, int]]()
        """Rows of the queue that owners have as done, and of which a killed member could not say so."""
        self._settled = SettledKeys(self.members)

    def run(self, *, is_short: bool) -> Iterator[Scene]:
        yield self._begun()
        yield self._owner_killed()
        yield self._split()
        yield self._leader_stands_still()
        yield self._members_away()
        if not is_short:
            yield self._killed_amid_change()
            yield self._merged()
            yield self._all_nodes_killed()
        yield self._ended()

    # ---- scenes ----

    def _begun(self) -> Scene:
        began = time.monotonic()
        self._client.create_topic(
            TOPIC, schema=SCHEMA, key=["producer"], partitions=PARTITIONS, replication=3
        )
        publish(self._client, TOPIC, range(10))
        for name in ("m0", "m1", "m2"):
            self._join(name)
        for name in ("q0", "q1"):
            self._join_queue(name)
        self._feed = Feed(self._three.addresses, TOPIC, start=10, pause_s=PAUSE_S).start()
        until(lambda: all(one.acked for one in self.members), STATE_S, "each member has acknowledged rows")
        until(lambda: all(one.acked for one in self.queue), STATE_S, "each member of the queue has, too")
        self._until_rows_flow()
        return Scene(f"three members of {STREAM}, two of the queue {QUEUE}, a producer", "", _since(began))

    def _owner_killed(self) -> Scene:
        place = self._follower()
        began = self._kill_node(place)
        seconds = self._until_rows_flow()
        self._restart_node(place)
        return Scene(
            f"kill -9 of node {'abc'[place]}, an owner", f"back after {_since(began):.1f} s", seconds
        )

    def _split(self) -> Scene:
        began = time.monotonic()
        counts = {one: len(rows) for one, rows in read_ids(self._client, TOPIC).items()}
        active = [part.partition for part in self._client.layout(TOPIC).active]
        fullest = max(active, key=lambda partition: counts[partition])
        self._change(lambda: self._client.admin.split(TOPIC, fullest, into=3, wait_s=STATE_S))
        seconds = self._until_rows_flow(began)
        return Scene(f"a partition of {PARTITIONS} is split into 3", self._layout(), seconds)

    def _leader_stands_still(self) -> Scene:
        place = self._three.leader()
        others = [other for other in range(3) if other != place]
        began = time.monotonic()
        self._three.nodes[place].freeze()
        until(lambda: self._three.led_by_one_of(others), STATE_S, "another node leads")
        led = f"another one leads after {_since(began):.1f} s"
        seconds = self._until_rows_flow()
        self._three.nodes[place].wake()
        self.counts.nodes_frozen += 1
        self.counts.losses.append(Loss(began, time.monotonic()))
        self._three.until_whole()
        return Scene(f"the leader, node {'abc'[place]}, stands still (SIGSTOP)", led, seconds)

    def _members_away(self) -> Scene:
        """One is killed, one frozen till the third one has all of their partitions; the queue loses one."""
        killed, frozen, lost = self.members[0], self.members[1], self.queue[0]
        began = time.monotonic()
        frozen.freeze()
        for one in (killed, lost):
            one.kill()
            self.counts.members_killed[one.name] = time.monotonic()
        seconds = self._until_rows_flow()
        frozen.wake()
        self.counts.members_frozen += 1
        woken = time.monotonic()
        self._join(f"m{len(self.members)}")
        self._join_queue(f"q{len(self.queue)}")
        until(lambda: frozen.given[-1].at > woken, STATE_S, "the member that was frozen gets rows")
        until(lambda: bool(self.members[-1].acked), STATE_S, "the new member gets rows")
        until(lambda: bool(self.queue[-1].acked), STATE_S, "the new member of the queue gets rows")
        title = f"kill -9 of {killed.name} and {lost.name}, {frozen.name} is frozen (SIGSTOP)"
        return Scene(title, f"both places are filled after {_since(began):.1f} s", seconds)

    def _killed_amid_change(self) -> Scene:
        place = self._follower()
        began = time.monotonic()
        self._client.admin.repartition(TOPIC, 7, wait_s=0)
        self._kill_node(place)
        seconds = self._until_rows_flow(began)
        self._restart_node(place)
        self._change(lambda: self._client.admin.repartition(TOPIC, 7, wait_s=STATE_S))
        title = f"7 partitions, kill -9 of node {'abc'[place]} meanwhile"
        return Scene(title, self._layout(), seconds)

    def _merged(self) -> Scene:
        began = time.monotonic()
        one, other = sorted(self._client.layout(TOPIC).active, key=lambda part: part.lo)[:2]
        merge = self._client.admin.merge
        self._change(lambda: merge(TOPIC, one.partition, other.partition, wait_s=STATE_S))
        return Scene("two partitions become one", self._layout(), self._until_rows_flow(began))

    def _all_nodes_killed(self) -> Scene:
        began = time.monotonic()
        self._three.kill_all()
        self._three.restart_all()
        self._three.until_whole()
        self.counts.nodes_killed += 3
        self.counts.losses.append(Loss(began, time.monotonic()))
        return Scene(
            "kill -9 of all nodes", f"all serve after {_since(began):.1f} s", self._until_rows_flow()
        )

    def _ended(self) -> Scene:
        began = time.monotonic()
        self._feed.finish()
        last = self._feed.next - 1
        say(f"the producer has ended, rows up to {last} of each key")
        until(lambda: self._settled.reached() >= last, END_S, f"all rows are acknowledged in {STREAM}")
        say(f"{STREAM} is through")
        self.stored = read_ids(self._client, TOPIC)

        for cohort in (STREAM, QUEUE):
            until(lambda cohort=cohort: self._lag(cohort) == 0, END_S, f"owners have all of {cohort} settled")
        for member in self.all_members():
            if member.process.poll() is None:
                member.stop()
        return Scene("the producer ends, the rest is acknowledged", "", _since(began))

    # ---- parts ----

    def _lag(self, cohort: str) -> int | None:
        """Rows that are not settled, as owners say; None: one does not say it."""
        time.sleep(0.2)  # the node asks all owners
        shown = ask(self._door, "GET", f"/admin/topics/public/default/{TOPIC}/subscriptions/{cohort}").body
        lags = [part["lag_rows"] for part in shown["partitions"]]
        return None if None in lags else sum(lags)

    def all_members(self) -> list[Member | QueueMember]:
        return [*self.members, *self.queue]

    @property
    def written(self) -> int:
        return sum(map(len, self.stored.values()))

    def _join(self, name: str) -> None:
        self.members.append(
            self._running.enter_context(
                Member(self._three.addresses, TOPIC, STREAM, name, {"work_s": WORK_S})
            )
        )

    def _join_queue(self, name: str) -> None:
        options = {"rows_max": 4 * KEYS, "work_s": 0.002}
        self.queue.append(
            self._running.enter_context(QueueMember(self._three.addresses, TOPIC, QUEUE, name, options))
        )

    def _until_rows_flow(self, began: float | None = None) -> float:
        """Until rows of each key that are sent from now on are acknowledged; seconds since `began`."""
        began, wanted = time.monotonic() if began is None else began, self._feed.next + 1

        def is_reached() -> bool:
            assert self._feed.errors == [], f"the producer: {self._feed.errors}"
            ended = {one.name: one.errors for one in self.members if one.errors}
            assert not ended, f"members ended: {ended}"
            return self._settled.reached() >= wanted

        until(is_reached, STATE_S, f"rows {wanted} of all keys are acknowledged")
        return _since(began)

    def _follower(self) -> int:
        """An owner that does not lead."""
        leader = self._three.leader()
        owners = {part.owner for part in self._client.layout(TOPIC).active}
        return next(place for place in range(3) if place != leader and self._three.id(place) in owners)

    def _kill_node(self, place: int) -> float:
        at = time.monotonic()
        self._three.nodes[place].kill()
        self.counts.nodes_killed += 1
        self.counts.losses.append(Loss(at, time.monotonic()))
        return at

    def _restart_node(self, place: int) -> None:
        self._three.nodes[place].start()
        self._three.until_whole()

    def _change(self, change: Callable[[], object]) -> None:
        """Ask again while a node that has just come back, or another change, keeps it from being done."""
        end = time.monotonic() + STATE_S
        while True:
            try:
                change()
            except (AlreadyExistsError, ConflictError, RetriableError):
                assert time.monotonic() < end, "the layout did not change"
                time.sleep(0.2)
            else:
                self.counts.changes += 1
                return

    def _layout(self) -> str:
        layout = self._client.layout(TOPIC)
        return f"{len(layout.active)} take rows, {len(layout.partitions) - len(layout.active)} are sealed"

    # ---- the judgement ----

    def judged(self) -> list[str]:
        """All that is wrong."""
        wrong = [f"{one.name}: {error}" for one in self.all_members() for error in one.errors]
        wrong += other_rows(self.all_members(), self.stored)
        history = stream_history(self.members, self.stored, self._parts())
        wrong += [f"{STREAM}: {one}" for one in anomalies(history)]
        self.queue_record = QueueRecord(self.counts.losses)
        wrong += [
            f"{QUEUE}: {one}"
            for one in anomalies(self.queue_record.take(self.queue, self.counts.members_killed))
        ]
        rows = {(partition, row) for partition, rows in self.stored.items() for row in range(len(rows))}
        self.unsaid = (rows - set(acked_rows(self.queue))) & set(
            last_deliveries(self.queue, self.counts.members_killed)
        )
        if missing := rows ^ set(acked_rows(self.queue)) ^ self.unsaid:
            told = f"{len(missing)} rows are not both stored and acknowledged: {sorted(missing)[:5]}"
            wrong.append(f"{QUEUE}: {told}")
        sent = {(key, number) for key in range(KEYS) for number in range(self._feed.next)}
        found = [row for rows in self.stored.values() for row in rows]
        if len(found) != len(sent) or set(found) != sent:
            wrong.append(
                f"{len(sent)} rows were sent, {len(found)} are stored, {len(sent - set(found))} lack"
            )
        return wrong

    def _parts(self) -> list[Part]:
        return [
            Part(
                part.partition,
                tuple(part.parents),
                None if part.state == "ACTIVE" else len(self.stored[part.partition]),
            )
            for part in self._client.layout(TOPIC).partitions.values()
        ]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _since(began: float) -> float:
    return time.monotonic() - began


def tell(demo: CohortDemo, scenes: list[Scene]) -> None:
    """The summary."""
    counts = demo.counts
    show_table(
        "", ("step", "result", "rows again after s"), [[*one[:2], f"{one.seconds:.2f}"] for one in scenes]
    )
    print(f"rows written: {demo.written:,}, by one producer, {KEYS} keys; layout changes: {counts.changes}")
    print(
        f"kill -9: {counts.nodes_killed} nodes, {len(counts.members_killed)} members; "
        f"SIGSTOP: {counts.nodes_frozen} leaders, {counts.members_frozen} members"
    )
    given = sum(one.end - one.first for member in demo.members for one in member.given)
    again = rows_again(demo.members)
    print(f"{STREAM} (STREAM): {given:,} rows given, {given - again:,} acknowledged, {again:,} redelivered")
    given = sum(one.end - one.first for member in demo.queue for one in member.given)
    acked = len(acked_rows(demo.queue)) + len(demo.unsaid)
    print(
        f"{QUEUE} (QUEUE): {given:,} rows given, {acked:,} acknowledged, "
        f"{rows_again(demo.queue):,} redelivered, {demo.queue_record.repeated:,} of them within "
        f"{LATE_S:g} s of the "
        "loss of an owner"
    )


def run(folder: Path, *, is_short: bool) -> int:
    began = time.monotonic()
    three = ThreeNodes(folder, options=("--session-grace-s", str(GRACE_S)))
    scenes = list[Scene]()
    door = with_http(three.nodes[0])
    with ExitStack() as running:
        running.callback(three.kill_all)
        three.start()
        client = running.enter_context(ringfence.connect(three.addresses, timeout_s=STATE_S))
        demo = CohortDemo(three, running, client, door)
        try:
            for scene in demo.run(is_short=is_short):
                say(f"{scene.title}: {scene.seconds:.2f} s")
                scenes.append(scene)
            wrong = demo.judged()
        except (AssertionError, RingfenceError) as error:
            print(
                f"the demo failed after {len(scenes)} scenes: {type(error).__name__}: {error}",
                file=sys.stderr,
            )
            for member in demo.all_members():
                print(
                    f"{member.name}: {len(member.acked)} acknowledged, errors {member.errors}",
                    file=sys.stderr,
                )
            return 1
    tell(demo, scenes)
    for line in wrong[:SHOWN_MAX]:
        print(f"WRONG: {line}")
    if len(wrong) > SHOWN_MAX:
        print(f"WRONG: and {len(wrong) - SHOWN_MAX} more")
    verdict = (
        "NOT as promised" if wrong else "every acknowledged row once, every other again, each key in order"
    )
    print(f"{verdict}; {_since(began):.0f} s")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cohort_demo", description=__doc__)
    parser.add_argument("--short", action="store_true", help="the first five scenes, in a minute")
    parser.add_argument("--keep", type=Path, help="data and logs of nodes go there, and stay")
    arguments = parser.parse_args()
    if arguments.keep is not None:
        return run(arguments.keep, is_short=arguments.short)
    with tempfile.TemporaryDirectory(prefix="ringfence-demo-cohort-") as folder:
        return run(Path(folder), is_short=arguments.short)


if __name__ == "__main__":
    raise SystemExit(main())
