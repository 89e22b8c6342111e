"""`partitions_of` for models of the native node that have `partitions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PartitionList:
    """A model of the native node, by its whole list."""

    def partitions(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def partitions_of(self, places: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """As the engine tells them: those that it has, in the order of the places."""
        known = {(one["topic"], one["partition"]): one for one in self.partitions()}
        return [known[place] for place in places if place in known]
