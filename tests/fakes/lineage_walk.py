"""Random walks of a modelled topic and its readers: layout changes, prunes, late tables, restarts."""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.fakes.lineage_reader import ModelReader
from tests.fakes.lineage_topic import LineageTopic, step

STEPS = 250
SLOTS = 6
READERS_MAX = 3


class Walked(NamedTuple):
    """`wrong`: the first fault. `broken`: readers that ended with an error. `rows`: that were read."""

    wrong: str | None
    versions: int
    pruned: int
    restarts: int
    broken: int
    rows: int


def walk(seed: int) -> Walked:
    """One walk.

    In half of the walks retention takes rows that were not read. In half of those rows are rare and readers
    sleep for long, so that whole generations come and go.
    """
    draw = random.Random(seed)
    model = LineageTopic(SLOTS, draw.randint(1, 3))
    hasty, sleepy = seed % 2 == 0, seed % 4 == 2
    readers = [ModelReader(model, draw, skips=seed % 6 == 0)]
    restarts = 0
    for at in range(STEPS):
        kind = draw.random()
        if sleepy and at % 50 < 35:
            step(model, draw, prunes=True, rows=0.12)
        elif kind < 0.4:
            step(model, draw, prunes=hasty and draw.random() < 0.3)
        elif kind < 0.5:
            _prune_read(model, readers, draw)
        elif kind < 0.94:
            draw.choice(readers).step()
        elif kind < 0.97:
            draw.choice(readers).save()
        elif kind < 0.985:
            draw.choice(readers).restart()
            restarts += 1
        elif len(readers) < READERS_MAX:
            readers.append(ModelReader(model, draw, skips=False))
        if any(reader.wrong for reader in readers):
            break
    else:
        for reader in readers:
            reader.finish()
    wrong = next((reader.wrong for reader in readers if reader.wrong), None)
    broken = sum(reader.broken for reader in readers)
    rows = sum(sum(reader.got.values()) for reader in readers)
    return Walked(wrong, model.version, len(model.pruned), restarts, broken, rows)


def _prune_read(model: LineageTopic, readers: list[ModelReader], draw: random.Random) -> None:
    """Prune a partition of which every reader has all rows, also one that starts at its kept positions."""
    free = [
        one
        for one in model.prunable()
        if all(
            _has_read(reader.got, model, one) and _has_read(reader.saved[1], model, one) for reader in readers
        )
    ]
    if free:
        model.prune(draw.choice(free))


def _has_read(got: dict[int, int], model: LineageTopic, partition: int) -> bool:
    return all(number <= got[slot] for slot, number in model.logs[partition].rows)
