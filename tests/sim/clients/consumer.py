"""A reader of the cluster: every partition from its owner, on and on; what it was given stays so (I14).

Where an operator gave rows up it may be refused to go on, and never goes on in another history."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.common.codec import Answer
from ringfence.native.wire import Code, Status
from tests.sim.checks.ledger import Published
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.content import body_of
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.reader import fetch_header, latest_ms, records_of, staged_header, staged_of

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation
    from tests.sim.world.machine import Machine

BEAT_US: Final = 150_000
POLL_MS: Final = 200
PATIENCE_US: Final = 1_500_000
ANEW: Final = 0.05  # share of answers behind which a partition is read from its start again


class Consumer(ClusterClient):
    """One fetch of each partition is under way at a time; a publisher's table tells of the owners."""

    def __init__(self, world: Simulation, random: Random) -> None:
        super().__init__(world, "con", random)
        self._simulation = world
        self._places: dict[int, tuple[int, int]] = {}  # offset, epoch of the row before
        self._asking: set[int] = set()
        self._rests_until: dict[int, int] = {}
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    def rest(self, partition: int, us: int) -> None:
        """Ask for nothing of a partition for a while: the log goes on meanwhile."""
        self._rests_until[partition] = self.world.agenda.now_us + us

    def _beat(self) -> None:
        self.lose_patience()
        layout = self._simulation.publishers[0].layout if self._simulation.publishers else None
        if layout is not None:
            for entry in layout.active:
                machine = self.world.machine_of(entry)
                rests = self._rests_until.get(entry.partition, 0) > self.world.agenda.now_us
                if entry.partition in self._asking or rests or machine is None:
                    continue
                if self.reach(machine):
                    self._ask(machine, layout.topic, entry.partition)
        self.world.agenda.after(BEAT_US, self._beat)

    def _ask(self, machine: Machine, topic: int, partition: int) -> None:
        number = self.next_request()
        self._asking.add(partition)
        offset, epoch = self._places.get(partition, (0, 0))
        frame = fetch_header(topic, number, partition, offset, epoch, POLL_MS)
        told = partial(self._told, machine, topic, partition)
        self.put(machine, number, frame, b"", told, PATIENCE_US)

    def _told(self, machine: Machine, topic: int, partition: int, answer: Answer | None) -> None:
        self._asking.discard(partition)
        if answer is None:
            return
        try:
            for published in self._check(partition, answer):
                self._follow(machine, topic, partition, published)
        except ViolationError as broken:
            self.world.violate(broken)

    def _follow(self, machine: Machine, topic: int, partition: int, published: Published) -> None:
        """What a publish names is there from now on: the first of it is asked for at once."""
        if not self.reach(machine):
            return
        number, first = self.next_request(), published.places[0]
        frame = staged_header(topic, number, partition, first.record)

        def told(answer: Answer | None) -> None:
            if answer is None or answer.header.status != Status.OK:
                return  # moved, or given up since
            part = self.world.ledger.partitions[partition]
            if part.lost_below or part.start > published.offset:
                return
            found = next((one for one in staged_of(bytes(answer.body)) if one.record == first.record), None)
            batch = None if found is None else self.world.ledger.batches.get(found.first)
            if found is None or batch is None or body_of(batch.first, batch.rows) != found.body:
                what = f"partition {partition}: record {first.record}, which is published, is read as {found}"
                self.world.violate(ViolationError("all or nothing", what[:300]))

        self.put(machine, number, frame, b"", told, PATIENCE_US)

    def _check(self, partition: int, answer: Answer) -> list[Published]:
        """What of it are publishes. Raises ViolationError."""
        publishes: list[Published] = []
        header, ledger = answer.header, self.world.ledger
        if header.status == Status.OK:
            records = records_of(header, bytes(answer.body))
            self.world.times.check(f"a record of partition {partition}", latest_ms(bytes(answer.body)))
            for record in records:
                ledger.read(partition, record)
            if records:
                ledger.took(partition, self._places.get(partition, (0, 0)), records[0])
                self._places[partition] = records[-1].offset + records[-1].rows, records[-1].epoch
            publishes = [record for record in records if isinstance(record, Published)]
        elif header.status == Status.REFUSED and header.code == Code.TRUNCATED:
            offset, epoch = self._places.get(partition, (0, 0))
            part = ledger.partitions[partition]
            is_given_up = part.may_lack((epoch, epoch), offset)
            self.world.counts["position_refused"] += is_given_up
            bound = max(part.start, part.lost_below)
            if offset > bound and header.first_offset <= offset and not is_given_up:
                what = f"partition {partition}: the rows below {offset} that were read under {epoch} are gone"
                raise ViolationError("I14", what)
            self._places[partition] = header.first_offset, 0
        if self.random.random() < ANEW:
            self._places[partition] = ledger.partitions[partition].start, 0
        return publishes
