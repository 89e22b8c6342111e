"""Define the samples of one metric."""

from __future__ import annotations

from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """All samples of one name. `kind` is `counter` or `gauge`."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Labels, float], ...]
