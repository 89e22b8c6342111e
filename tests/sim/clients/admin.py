"""Administrators: they make topics, ask for them and delete them through any node, and keep a history of it.

The history is checked for linearizability in the end (tests/checker): no node may tell an old tale.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.common.codec import Answer
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers.commands import at_control_address
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc import messages as calls
from ringfence.native import messages
from ringfence.native.wire import Code, Opcode, Status
from tests.checker import Recorder, Verdict, check
from tests.checker.topics import Create, Delete, Describe, TopicsModel
from tests.sim.checks.ledger import Partition, Truncation
from tests.sim.checks.violation import ViolationError
from tests.sim.clients import keyed
from tests.sim.clients.content import SCHEMA
from tests.sim.clients.customer import ClusterClient

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine
    from tests.sim.world.world import World

BEAT_US: Final = 50_000
PATIENCE_US: Final = 5_000_000
AGAIN_US: Final = 100_000
NAMES: Final = ("a", "b")
UNDER_WAY_MAX: Final = 3
FINALIZATION: Final = at_control_address("cluster finalize", "cluster", "finalize")
FINALIZE: Final = 0.02  # share of beats with a try, while the cluster is at an older level
OPERATION: Final = 0.15  # share of beats with a new one


class Admin(ClusterClient):
    """One client with several operations under way."""

    def __init__(self, world: World, random: Random) -> None:
        super().__init__(world, "adm", random)
        self._history = Recorder()
        self._wanted: tuple[str, int] | None = None
        self._under_way = 0
        self._dice = Random(f"finalize {world.plan.seed}")  # its own: other seeds stay what they were
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    @property
    def idle(self) -> bool:
        return not self._asked and self._wanted is None and not self._lowest()

    def wants(self, topic: str, partitions: int) -> None:
        """The topic that rows go to is created, sooner or later."""
        self._wanted = topic, partitions

    def _beat(self) -> None:
        self.lose_patience()
        if self._lowest() and (self.world.healed or self._dice.random() < FINALIZE):
            self._finalize()
        if self._wanted is not None and not self._under_way:
            self._create_wanted()
        elif not self.world.healed and self._under_way < UNDER_WAY_MAX and self.random.random() < OPERATION:
            self._operate()
        self.world.agenda.after(BEAT_US, self._beat)

    def _request(self, machine: Machine, opcode: int, message: Any, told: Any) -> None:
        self._under_way += 1

        def ended(answer: Answer | None) -> None:
            self._under_way -= 1
            told(answer)

        self.ask(
            machine, opcode, ended, body=messages.encode(message), patience_us=PATIENCE_US, deadline_ms=4_000
        )

    # ---- the end of an upgrade ----

    def _lowest(self) -> bool:
        """Whether a machine's metadata is below the newest level."""
        known = (machine.replica for machine in self.world.machines)
        return any(replica is None or replica.state.level < self.world.plan.newest for replica in known)

    def _finalize(self) -> None:
        """Through any node; refused while another one does not answer, and asked for again."""
        serving = [machine for machine in self.world.machines if machine.serving and not machine.paused]
        if not serving:
            return
        machine = self._dice.choice(serving)
        node = machine.node
        assert node is not None

        async def finalize() -> None:
            with contextlib.suppress(RequestRefused):
                await node.handlers.commands.submit(node.levels.plan_finalization, FINALIZATION)
                self.world.counts["finalized"] += 1

        machine.call(lambda: machine.spawn(finalize()))

    def check_levels(self) -> None:
        """Raises ViolationError where a store would let a program in that cannot read what is there."""
        newest = self.world.plan.newest
        for machine in self.world.machines:
            promised = machine.node.parts.directory.identity.level if machine.node is not None else newest
            if promised < newest:
                raise ViolationError("level", f"{machine.name} promised level {promised} only")

    # ---- the topic of the rows ----

    def _create_wanted(self) -> None:
        machine = self.tried()
        if machine is None or self._wanted is None:
            return
        name, partitions = self._wanted
        request = messages.TopicCreate(
            name=name,
            schema=keyed.SCHEMA if self.world.plan.layouts else SCHEMA,
            partitions=partitions,
            replication=self.world.plan.replication,
            key=keyed.KEY if self.world.plan.layouts and not self.world.plan.keyless else [],
            exist_ok=True,
        )
        self._request(machine, Opcode.TOPIC_CREATE, request, self._created_wanted)

    def _created_wanted(self, answer: Answer | None) -> None:
        if answer is not None and answer.header.status == Status.OK:
            info = answer.control(messages.TopicInfo)
            for stats in info.partitions:
                self.world.ledger.add(stats.partition)
            self._wanted = None

    # ---- a history ----

    def _operate(self) -> None:
        machine = self.tried()
        if machine is None:
            return
        name = self.random.choice(NAMES)
        now = self.world.agenda.now_us
        kind = self.random.choice(["create", "delete", "describe", "describe"])
        process = f"{machine.name}.{self.next_request()}"
        if kind == "create":
            ticket = self._history.invoke(process, Create(name), now)
            request: Any = messages.TopicCreate(name=name, schema=SCHEMA)
            self._request(machine, Opcode.TOPIC_CREATE, request, lambda answer: self._created(ticket, answer))
        elif kind == "delete":
            ticket = self._history.invoke(process, Delete(name), now)
            self._request(
                machine,
                Opcode.TOPIC_DELETE,
                messages.TopicName(name=name),
                lambda answer: self._ended(ticket, answer, lambda _: True, False),
            )
        else:
            self._read(machine, name, self._history.invoke(process, Describe(name), now))

    def _read(self, machine: Machine, name: str, ticket: int) -> None:
        """A linearizable look at one name, as the node's own handlers take one.

        TOPIC_DESCRIBE answers from what the node has applied, which may be old: no operation of this history.
        """
        assert machine.node is not None
        proposer, now = machine.node.proposer, self.world.agenda

        async def look() -> None:
            try:
                await proposer.read_barrier()
            except RequestRefused:
                self._history.without_effect(ticket)
                return
            topic = proposer.state.topic_named(f"public/default/{name}")
            self._history.returned(ticket, None if topic is None else int(topic.topic), now.now_us)

        machine.call(lambda: machine.spawn(look()))

    def _created(self, ticket: int, answer: Answer | None) -> None:
        if answer is not None and answer.header.code == Code.UNKNOWN_TOPIC:
            self._history.unknown(ticket)  # it was created, and is deleted already
            return
        self._ended(ticket, answer, lambda body: body.control(messages.TopicInfo).topic, None)

    def _ended(self, ticket: int, answer: Answer | None, result: Any, nothing: Any) -> None:
        """`nothing`: what a refusal for what is there, or is not, means."""
        now = self.world.agenda.now_us
        if answer is None:
            self._history.unknown(ticket)
        elif answer.header.status == Status.OK:
            self._history.returned(ticket, result(answer), now)
        elif answer.header.code in (Code.ALREADY_EXISTS, Code.UNKNOWN_TOPIC):
            self._history.returned(ticket, nothing, now)
        elif answer.header.code in (Code.UNKNOWN_OUTCOME, Code.INTERNAL):
            self._history.unknown(ticket)
        else:
            self._history.without_effect(ticket)

    def check(self, state: MetadataState) -> None:
        """Raises ViolationError where no order of all operations explains the answers and the end."""
        now = self.world.agenda.now_us
        for name in NAMES:
            topic = state.topic_named(f"public/default/{name}")
            ticket = self._history.invoke("end", Describe(name), now)
            self._history.returned(ticket, None if topic is None else int(topic.topic), now)
        operations = self._history.operations()
        self.world.counts["operations"] += len(operations)
        outcome = check(TopicsModel(), operations)
        if outcome.verdict is Verdict.VIOLATION:
            raise ViolationError("linearizability", outcome.why)

    # ---- strikes ----

    def looks(self, machine: Machine) -> None:
        """A linearizable read there, now."""
        if machine.serving and not machine.paused and not self.world.healed:
            name = self.random.choice(NAMES)
            process = f"{machine.name}.{self.next_request()}"
            ticket = self._history.invoke(process, Describe(name), self.world.agenda.now_us)
            self._read(machine, name, ticket)

    def bursts(self, count: int) -> None:
        """Identities for producers that nobody uses: proposals that need no room."""
        machine = self.tried()
        if machine is None or self._wanted is not None:
            return
        for _ in range(count):
            self._request(machine, Opcode.PRODUCER_OPEN, messages.ProducerOpen(topic="rows"), lambda _: None)

    def votes(self, machine: Machine, change: str) -> None:
        """As `ringfence node promote` does, at any node's control address."""
        target = self.random.choice(self.world.machines)
        node = target.node
        if node is None or not target.serving or target.paused:
            return
        number = self.world.node_of(machine)
        if number:
            call = calls.ChangeNode(node=number, change=change)
            self.world.tell("adm", f"{change} node {number} at {target.name}")

            async def ask() -> None:
                with contextlib.suppress(RequestRefused):
                    await node.handlers.control_server.reply(call)

            target.call(lambda: target.spawn(ask()))

    def deletes(self, topic: str) -> None:
        """The topic that rows go to; it is not made again."""
        machine = self.tried()
        if machine is not None:
            self.world.count("delete_asked")
            self._request(machine, Opcode.TOPIC_DELETE, messages.TopicName(name=topic), lambda _: None)

    def truncates(self, topic: str, dice: Random) -> None:
        """Acknowledged places of one partition become its start."""
        parts = sorted(self.world.ledger.partitions)
        if parts:
            self._truncate(topic, self.world.ledger.partitions[dice.choice(parts)], dice)

    def truncates_all(self, topic: str, dice: Random) -> None:
        """The same of all partitions: whole files are free then, and used anew."""
        for part in sorted(self.world.ledger.partitions):
            self._truncate(topic, self.world.ledger.partitions[part], dice)

    def _truncate(self, topic: str, part: Partition, dice: Random) -> None:
        self.truncates_to(
            topic, part, part.start + (part.truncatable - part.start) * dice.randrange(50, 101) // 100
        )

    def truncates_to(
        self, topic: str, part: Partition, before: int, machine: Machine | None = None
    ) -> Truncation | None:
        """Ask a machine, any without one, to give up rows below `before`; the ledger hears of it."""
        machine = machine or self.tried()
        if machine is None or before <= part.start:
            return None
        self.world.count("truncate_asked")
        asked = self.world.ledger.truncated(part.number, before)
        request = messages.TopicTruncate(name=topic, partition=part.number, before_offset=before)

        def told(answer: Answer | None) -> None:
            if answer is not None and answer.header.status == Status.OK:
                self.world.count("truncated")
                self.world.ledger.given_up(asked)
            elif answer is not None and answer.header.code == Code.INVALID_ARGUMENT:
                asked.ended = True

        self._request(machine, Opcode.TOPIC_TRUNCATE, request, told)
        return asked
