"""What the metadata and the owners of gates say of one cohort in a seed, whatever its mode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ringfence.control.model.ids import drawn_at
from ringfence.control.runtime.cohorts.figures import gate_owners
from ringfence.control.state_machines.metadata.cohort_lineage import has_mark

if TYPE_CHECKING:
    from tests.sim.cohorts import CohortSimulation


class CohortState(ABC):
    """Of the cohort of this name, of the topic that rows go to."""

    def __init__(self, world: CohortSimulation, name: str) -> None:
        self._world, self.name = world, name
        self.incarnations: list[tuple[int, int]] = []
        """(index of its entry, incarnation), ascending."""
        self.partitions: dict[int, bool] = {}
        """By partition: whether it is known as sealed."""

    # ---- what the mode does ----

    @abstractmethod
    def begins(self, incarnation: int, begins: dict[int, int]) -> None:
        """An incarnation begins, in these partitions at these offsets, in others at 0."""

    @abstractmethod
    def made(self, partition: int, parents: tuple[int, ...]) -> None:
        """A partition was made."""

    @abstractmethod
    def sealed(self, partition: int, end: int) -> None:
        """A partition ends at this offset."""

    @abstractmethod
    def missing(self, partition: int, figures: dict[str, Any]) -> str:
        """What an owner's figures of a gate show as not done yet; empty: nothing."""

    @abstractmethod
    def check(self) -> None:
        """In the end. Raises ViolationError."""

    # ---- the metadata ----

    def changed(self, state: Any) -> None:
        """A newer state, applied somewhere for the first time."""
        found = self.cohort(state)
        if found is not None:
            entry = int(drawn_at(found.incarnation)), int(found.incarnation)
            if entry not in self.incarnations:
                self.incarnations.append(entry)
                begins = {int(one.partition): int(one.offset) for one in found.start.positions}
                self.begins(entry[1], begins)
                self._world.count("incarnation")
        topic = self._world.topic_of(state)
        if topic is None:
            return
        for part in topic.layout.partitions:
            number = int(part.partition)
            if number not in self.partitions:
                self.partitions[number] = False
                self.made(number, tuple(map(int, part.parents)))
            seal = topic.seal(part.partition)
            if seal is not None and not self.partitions[number]:
                self.partitions[number] = True
                self.sealed(number, int(seal.end.offset))

    def cohort(self, state: Any) -> Any:
        """The cohort; None: there is none yet, or not any more."""
        topic = self._world.topic_of(state)
        number = None if topic is None else state.cohort_names.get(topic.topic, {}).get(self.name)
        return None if number is None else state.cohorts[number]

    @property
    def incarnation(self) -> int:
        """The present one; 0: there is no cohort yet."""
        return self.incarnations[-1][1] if self.incarnations else 0

    def behind(self, state: Any) -> str:
        """What the cohort has not come to yet; empty if it is at every end."""
        topic, found = self._world.topic_of(state), self.cohort(state)
        if topic is None or found is None:
            return "" if topic is None else f"there is no cohort {self.name}"
        if found.resetting:
            return f"{self.name}: partitions {found.resetting} have not begun"
        owners = gate_owners(topic)
        for part in topic.layout.partitions:
            number = part.partition
            if has_mark(state, found.cohort, number):
                continue
            if not part.is_active:
                return f"{self.name}: sealed partition {number} is not drained"
            machine = self._world.by_node(int(owners[number]))
            figures = [] if machine is None or not machine.serving else machine.host.node.cohort_figures()
            mine = next(
                (one for one in figures if (one["partition"], one["cohort"]) == (number, found.cohort)), None
            )
            if mine is None or mine["settled"] < mine["end"]:
                return f"{self.name}: partition {number}: {mine} is not settled to its end"
            if what := self.missing(int(number), mine):
                return f"{self.name}: partition {number}: {what}"
        return ""
