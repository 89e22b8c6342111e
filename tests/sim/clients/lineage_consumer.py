"""A reader that follows splits and merges: the client's own lineage machine, over simulated connections.

Now and then it begins again from positions that it has saved. In the end it was given each row once.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringfence.cluster.offsets import has_ended
from ringfence.common.codec import Answer
from ringfence.common.lineage import Begin, Effect, FetchTable, Finish, Lineage, Lost, restore, view_of
from ringfence.native.wire import Code, Features, Status
from tests.sim.checks.ledger import Published, Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.keyed import first_id, ids_of
from tests.sim.clients.reader import fetch_header, latest_ms, records_of, staged_header, staged_of

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from tests.sim.checks.lineage_ledger import LineageLedger
    from tests.sim.simulation import Simulation
    from tests.sim.world.machine import Machine

BEAT_US: Final = 60_000
POLL_MS: Final = 200
PATIENCE_US: Final = 1_500_000
SAVES: Final = 0.04
"""Share of answers behind which it saves its positions; of as many it begins again from them."""


FETCH_BYTES: Final = (4_096, 65_536)
"""Of one answer, by the seed: with few an answer often ends before the rows of a sealed partition do."""
RESTS: Final = 0.03
"""Share of answers after which it leaves that partition alone for a while, and reads others."""
RESTS_US: Final = (100_000, 1_500_000)


class Saved(NamedTuple):
    """Positions (offset, epoch of the row before), and how many rows had been given."""

    positions: dict[int, tuple[int, int]]
    given: int


class LineageConsumer(ClusterClient):
    """One fetch of each admitted partition is under way at a time; a publisher's table tells the owners."""

    features = int(Features.RESUME_RANGES | Features.LINEAGE)

    def __init__(self, world: Simulation, random: Random) -> None:
        super().__init__(world, "con", random)
        self._simulation = world
        self._layout: Layout | None = None
        self._lineage: Lineage | None = None
        self._cursors: dict[int, tuple[int, int]] = {}
        self._asking: set[int] = set()
        self._rests_until: dict[int, int] = {}
        self._given: list[int] = []
        self._saved: Saved | None = None
        self._pass = 0
        self._bytes = FETCH_BYTES[world.plan.seed % 2]
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    @property
    def _ledger(self) -> LineageLedger:
        found: Any = self.world.ledger
        return found  # type: ignore[no-any-return]

    def rest(self, partition: int, us: int) -> None:
        """Ask for nothing of a partition for a while: the log goes on meanwhile."""
        self._rests_until[partition] = self.world.agenda.now_us + us

    # ---- tables ----

    def _beat(self) -> None:
        self.lose_patience()
        held = self._simulation.publishers[0].layout if self._simulation.publishers else None
        if held is not None and held is not self._layout:
            self._layout = held
            if self._lineage is None:
                self._begin({})
            else:
                self._apply(self._lineage.table(view_of(held)))
        if self._lineage is not None and self._layout is not None:
            for number in self._lineage.admitted:
                entry = self._layout.partitions.get(number)
                if entry is None:  # pruned: the table tells, as in `Reader._request`
                    self._apply(self._lineage.missing(number, self._cursors[number][0]))
                    continue
                machine = self.world.machine_of(entry)
                rests = self._rests_until.get(number, 0) > self.world.agenda.now_us and not self.world.healed
                if number not in self._asking and not rests and machine is not None and self.reach(machine):
                    self._ask(machine, self._layout.topic, number)
        self.world.agenda.after(BEAT_US, self._beat)

    def _begin(self, positions: dict[int, tuple[int, int]]) -> None:
        assert self._layout is not None
        view = view_of(self._layout)
        self._pass += 1
        self._asking.clear()
        self._lineage = Lineage(view, restore(view, positions), grows=True)
        self._cursors = {number: positions.get(number, (0, 0)) for number in self._lineage.open}
        self._apply(self._lineage.begin({number: offset for number, (offset, _) in self._cursors.items()}))

    def _apply(self, effects: list[Effect]) -> None:
        lineage = self._lineage
        assert lineage is not None
        for effect in effects:
            match effect:
                case Begin(number):
                    self._cursors[number] = (0, 0)
                case Finish(number):
                    self._cursors.pop(number, None)
                    self.world.count("reader_finished")
                case FetchTable():
                    self._simulation.publishers[0]._fetch()
                case Lost(number, offset, end):
                    start = self._ledger.partitions[number].start
                    known = self._ledger.ends.get(number, (0, 0))[0]
                    self.world.count("reader_lost")
                    is_given_up = bool(self._ledger.partitions[number].forced)
                    if start < (known if end is None else end) and not is_given_up:
                        what = f"partition {number}: the reader is told that rows from {offset} on are lost"
                        self.world.violate(ViolationError("I14", f"{what}, the log starts at {start}"))
                    self._apply(lineage.skip(number))
        for fault in lineage.faults():
            self.world.violate(ViolationError("lineage", fault))

    # ---- rows ----

    def _ask(self, machine: Machine, topic: int, partition: int) -> None:
        number = self.next_request()
        self._asking.add(partition)
        offset, epoch = self._cursors[partition]
        frame = fetch_header(topic, number, partition, offset, epoch, POLL_MS, self._bytes)
        self.put(
            machine, number, frame, b"", partial(self._told, self._pass, machine, partition), PATIENCE_US
        )

    def _told(self, read: int, machine: Machine, partition: int, answer: Answer | None) -> None:
        if read != self._pass:
            return  # of before it began again
        self._asking.discard(partition)
        if answer is None or self._lineage is None or partition not in self._cursors:
            return
        try:
            self._check(self._lineage, machine, partition, answer)
        except ViolationError as broken:
            self.world.violate(broken)
        if self.random.random() < RESTS:
            self._rests_until[partition] = self.world.agenda.now_us + self.random.randrange(*RESTS_US)
        if not self.world.healed and self.random.random() < 2 * SAVES:
            self._save_or_begin_again()

    def _save_or_begin_again(self) -> None:
        if self._saved is not None and self.random.random() < 0.5:
            self.world.count("reader_restored")
            del self._given[self._saved.given :]
            self._begin(self._saved.positions)
        else:
            self._saved = Saved(self._positions(), len(self._given))

    def _positions(self) -> dict[int, tuple[int, int]]:
        """Of all partitions that are open, also of those that wait for others."""
        return dict(self._cursors)

    def _check(self, lineage: Lineage, machine: Machine, partition: int, answer: Answer) -> None:
        """Take rows, and what else the owner says. Raises ViolationError."""
        header, body = answer.header, bytes(answer.body)
        if header.status == Status.OK:
            self.world.times.check(f"a record of partition {partition}", latest_ms(body))
            for record in records_of(header, body, first_id):
                self._ledger.read(partition, record)
                if isinstance(record, Published):
                    self._follow(machine, partition, record, [])
                    return  # what comes after it is asked for once these rows are here
                self._take(partition, record)
            if has_ended(header):
                self._apply(lineage.ended(partition))
        elif header.status == Status.REFUSED and header.code == Code.TRUNCATED:
            offset, epoch = self._cursors[partition]
            part = self._ledger.partitions[partition]
            is_given_up = part.may_lack((epoch, epoch), offset)
            self.world.counts["position_refused"] += is_given_up
            if offset > part.start and header.first_offset <= offset and not is_given_up:
                what = f"partition {partition}: the rows below {offset} that were read under {epoch} are gone"
                raise ViolationError("I14", what)
            common = min((one.end for one in part.forced), default=0) if is_given_up else 0
            self._cursors[partition] = max(header.first_offset, min(common, offset)), 0
        elif header.status == Status.REFUSED and header.code == Code.NOT_SUPPORTED:
            what = f"partition {partition} is not served to a reader of lineages"
            raise ViolationError("protocol", what)
        else:
            self._simulation.publishers[0]._fetch()

    def _follow(self, machine: Machine, partition: int, published: Published, found: list[Stored]) -> None:
        """Fetch the staged rows that a publish gives offsets to, and take them when all are here."""
        left = published.places[len(found) :]
        if not left:
            for record in found:
                self._ledger.read(partition, record)
                if record.offset + record.rows > self._cursors[partition][0]:
                    self._take(partition, record)
            self.world.count("reader_published")
            return
        if self._layout is None or not self.reach(machine):
            return
        number = self.next_request()
        self._asking.add(partition)
        frame = staged_header(self._layout.topic, number, partition, left[0].record)
        told = partial(self._told_staged, self._pass, machine, partition, published, found)
        self.put(machine, number, frame, b"", told, PATIENCE_US)

    def _told_staged(
        self,
        read: int,
        machine: Machine,
        partition: int,
        published: Published,
        found: list[Stored],
        answer: Answer | None,
    ) -> None:
        if read != self._pass:
            return
        self._asking.discard(partition)
        if answer is None or answer.header.status != Status.OK or partition not in self._cursors:
            return  # the publish is read again
        here = {one.record: one for one in staged_of(bytes(answer.body), first_id)}
        more: list[Stored] = []
        for place in published.places[len(found) :]:
            one = here.get(place.record)
            if one is None:
                break
            more.append(Stored(place.offset, one.rows, one.first, published.epoch, one.body))
        if not more:
            what = f"partition {partition}: of the publish at {published.offset} a record is not in the log"
            self.world.violate(ViolationError("all or nothing", what))
            return
        try:
            self._follow(machine, partition, published, [*found, *more])
        except ViolationError as broken:
            self.world.violate(broken)

    def _take(self, partition: int, record: Stored) -> None:
        offset, _ = self._cursors[partition]
        ids = ids_of(record.body)
        self._given += ids[max(0, offset - record.offset) :]
        self._cursors[partition] = record.offset + record.rows, record.epoch

    # ---- the end ----

    def lagging(self, ends: dict[int, int]) -> str:
        """What it has not read yet, of ACTIVE partitions that end there; empty if it has read everything."""
        if self._lineage is None:
            return "the reader has no table"
        if missing := ends.keys() ^ self._cursors.keys():
            opened = sorted(self._cursors)
            return f"the reader has {opened} open, ACTIVE are {sorted(ends)}: not {sorted(missing)}"
        late = {number: (offset, ends[number]) for number, (offset, _) in self._cursors.items()}
        late = {number: places for number, places in late.items() if places[0] < places[1]}
        return f"the reader is at (offset, end) {late}" if late else ""

    def check(self) -> None:
        """It was given each acknowledged row once, in the order of its key. Raises ViolationError."""
        rows, last = self._ledger.rows, dict[tuple[int, int], tuple[int, int]]()
        given = set[int]()
        for number in self._given:
            if number in self._ledger.passed_over:
                continue
            if number in given:
                raise ViolationError("R2", f"row {number} was given to the reader twice")
            given.add(number)
            row = rows[number]
            key, place = self._ledger.order(number), (row.send, number)
            if row.outcome == "done" and key is not None:
                if place < last.get(key, (0, 0)):
                    what = f"row {number} of send {row.send} was read after {last[key]}"
                    raise ViolationError("I7", f"producer {row.producer}, key {key[1]}: {what}")
                last[key] = place
        for number, row in rows.items():
            if row.outcome == "done" and number not in given and not self._ledger.may_be_lost(number):
                raise ViolationError("R1", f"row {number}, acknowledged in {row.partition}, was passed over")
        self.world.counts["rows_given"] += len(given)
