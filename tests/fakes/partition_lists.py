"""`partitions_of` for models of the native node that have `partitions`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class PartitionList(ABC):
    """A model of the native node, by its whole list."""

    @abstractmethod
    def partitions(self) -> list[dict[str, Any]]: ...

    def partitions_of(self, places: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """As the engine tells them: those that it has, in the order of the places."""
        known = {(one["topic"], one["partition"]): one for one in self.partitions()}
        return [known[place] for place in places if place in known]
