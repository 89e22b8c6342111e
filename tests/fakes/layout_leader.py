"""A leader of one layout change: orders are answered and entries applied by hand."""

from __future__ import annotations

from typing import Any

from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.state_machines.layout.coordinator import LayoutCoordinator
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Created,
    Inherit,
    Inherited,
    LayoutAnswer,
    LayoutOrder,
    LookLayout,
    Seal,
    SealedEnds,
)
from ringfence.control.state_machines.reassignment.messages import OrderDone
from tests.fakes.layout_log import END, LayoutLog


class Led:
    """A transition with its coordinator; the clock stands until `later`."""

    def __init__(self, *, replication: int = 3, kind: str = "split") -> None:
        self.log = LayoutLog(4, replication=replication)
        one, other = self.log.active[:2]
        self.log.must(self.log.split(one) if kind == "split" else self.log.merge(one, other))
        self.coordinator, self.now_ms = LayoutCoordinator(), 10_000

    @property
    def children(self) -> list[PartitionId]:
        return [child.partition for child in self.log.transition.children]

    def step(self) -> tuple[tuple[LayoutOrder, ...], tuple[Any, ...]]:
        orders, entries = self.coordinator.step(self.log.state, self.now_ms)
        return orders, entries

    def orders(self, kind: type[Any]) -> list[int]:
        """The nodes that get orders now, which are all of this kind."""
        orders, entries = self.step()
        assert all(isinstance(order, kind) for order in orders), orders
        assert not entries
        return sorted(order.to.node for order in orders)

    def entry(self, kind: type[Any]) -> Any:
        orders, entries = self.step()
        assert not orders
        [entry] = entries
        assert isinstance(entry, kind)
        return entry

    def later(self, more_ms: int) -> None:
        self.now_ms += more_ms

    def answer(self, kind: type[Any], make: Any) -> None:
        """Each node answers its order of this kind with what `make` says for it."""
        for order in self.step()[0]:
            assert isinstance(order, kind)
            answer: LayoutAnswer = make(order)
            self.coordinator.observe_answer(order, answer)

    def own(self, order: LayoutOrder) -> tuple[tuple[PartitionId, LogEnd], ...]:
        end = LogEnd(Epoch(order.change), 2, 0, 5)
        return tuple(
            (child.partition, end) for child in self.log.transition.children if child.replicas[0] == order.to
        )

    def created(self) -> None:
        self.answer(CreateChild, lambda order: Created(children=self.own(order)))

    def inherited(self) -> None:
        self.answer(Inherit, lambda order: Inherited(children=self.own(order)))

    def quiet(self) -> None:
        self.answer(LookLayout, lambda _: OrderDone())

    def sealed(self) -> None:
        def make(order: LayoutOrder) -> SealedEnds:
            topic = self.log.now
            return SealedEnds(
                sources=tuple(
                    (source, END, 17)
                    for source in self.log.transition.sources
                    if topic.assignments[source].owner == order.to
                )
            )

        self.answer(Seal, make)

    def upto(self, phase: ChangePhase) -> None:
        """Bring the transition into this phase, by answers and the entries that follow."""
        for answers in (
            (self.created, self.inherited, self.quiet),
            (self.sealed, self.inherited),
            (self.quiet,),
        ):
            if self.log.transition.phase is phase:
                return
            for bring in answers:
                bring()
            [entry] = self.step()[1]
            self.log.must(entry)
