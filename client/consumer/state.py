"""What the parts of a member share: partitions, calls under way, and what is to be done. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from ringfence.consumer.calls import Ring
from ringfence.consumer.lost_rows import LostRows
from ringfence.consumer.routes import Routes
from ringfence.consumer.values import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringfence.consumer.calls import Call, Effect
    from ringfence.consumer.gate import Gate
    from ringfence.consumer.values import MemberOptions, TaskKind

AnyCall = TypeVar("AnyCall", bound="Call")


class State:
    """State of one member.

    Attributes:
        gates: by partition.
        attached: nodes whose connection is bound to the session.
        calls: under way, by number, with the time at which each was made.
        effects: to be carried out, in order; the caller of the member takes them.
        tasks: what the application is to be told, in order.
        lost_rows: given, and not settled when their hold ended: an error of who waits for all that was given.
        arrived: partitions with new rows, since the application looked last.
        bytes: in memory: fetched, and given without an acknowledgement.
        known_generation: the newest plan that a node has named.
        needs_table: least version of the routing table that helps; None: the present one is good.
        silent_error: final, and owners hear nothing more of this member.
        on_silent: called with that error, to end all that waits for owners.
    """

    def __init__(self, options: MemberOptions) -> None:
        self.options = options
        self.routes = Routes(None)
        self.gates: dict[int, Gate] = {}
        self.session = self.generation = self.incarnation = 0
        self.lease_s = 10.0
        self.rows_lease_s = 30.0  # QUEUE
        self.attached: set[int] = set()
        self.calls: dict[int, tuple[Call, float]] = {}
        self.effects: list[Effect] = []
        self.tasks: deque[Task] = deque()
        self.lost_rows = LostRows()
        self.arrived: list[int] = []
        self.bytes = 0
        self.known_generation = 0
        self.is_closing = False
        self.needs_table: int | None = None
        self.error: Exception | None = None
        self.final_error: Exception | None = None
        self.silent_error: Exception | None = None
        self.on_silent: Callable[[Exception], None] = lambda _: None
        self._numbers = self._tasks = 0
        self._gate_nodes: tuple[Routes, frozenset[int]] | None = None

    def call(self, make: Callable[[int], AnyCall], now: float) -> AnyCall:
        """Begin a call; `make` gets its number."""
        self._numbers += 1
        call = make(self._numbers)
        self.calls[call.number] = (call, now)
        self.effects.append(call)
        return call

    def add_gate(self, gate: Gate) -> Gate:
        """A partition that the member has from now on."""
        self.gates[gate.partition], self._gate_nodes = gate, None
        return gate

    def remove_gate(self, gate: Gate) -> None:
        """It has it no more."""
        del self.gates[gate.partition]
        self._gate_nodes = None

    @property
    def gate_nodes(self) -> frozenset[int]:
        """The nodes that own gates of this member. Each event asks for them."""
        if self._gate_nodes is None or self._gate_nodes[0] is not self.routes:
            node_of = self.routes.node_of
            found = frozenset(node for one in self.gates if (node := node_of(one)) is not None)
            self._gate_nodes = self.routes, found
        return self._gate_nodes[1]

    @property
    def needs_plan(self) -> bool:
        """Whether a node knows a newer plan."""
        return self.known_generation > self.generation

    def heard(self, generation: int) -> None:
        """A node has a plan of this generation."""
        self.known_generation = max(self.known_generation, generation)

    def ring(self) -> None:
        """Wake the application, once."""
        if not self.effects or not isinstance(self.effects[-1], Ring):
            self.effects.append(Ring())

    def tell(self, kind: TaskKind, partitions: Iterable[int]) -> None:
        """The application is told something, if it wants to hear it."""
        ids = tuple(sorted(partitions))
        if ids:
            self._tasks += 1
            self.tasks.append(Task(kind, ids, self._tasks))
            self.ring()

    def fail(self, error: Exception, *, is_final: bool = False) -> None:
        """The next step of the application raises this; every one, if it is final. The first error counts."""
        self.error = self.error or error
        if is_final:
            self.final_error = self.final_error or error
        self.ring()

    def fall_silent(self, error: Exception) -> None:
        """A final error after which owners hear nothing more: who waits for them hears the error."""
        self.fail(error, is_final=True)
        self.silent_error = self.silent_error or error
        self.on_silent(self.silent_error)

    def node_of(self, gate: Gate) -> int | None:
        """The node of a gate, if this member can speak to it."""
        node = self.routes.node_of(gate.partition)
        return node if node in self.attached else None
