"""The steps of a cohort's life that `cohort_matrix` strikes, and the harms that can come at each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.sim.faults.struck import HARMS, SPANS_US, Cell

STREAM: Final = (
    *("joined", "planned", "held", "acknowledging", "acknowledged"),
    *("second_joined", "revoked", "handed_over", "left"),
    *("sought", "begun"),
    *("prepared", "sealing", "committed", "drained", "heir_committed"),
    *("moved", "failed_over"),
)
"""A member joins, is planned, has a hold, acknowledges, and is answered. Another joins: partitions are taken
from the first, and handed over. The first leaves. A seek is in the log, and has begun everywhere. A layout
change is PREPARED, HELD, COMMITTED; a sealed partition is drained; its heir is split, too. A partition moves.
Its owner dies, and the next one is in the log."""
QUEUE: Final = ("leased", "done", "parked", "put_back", "queue_prepared", "queue_committed")
"""Rows are on lease; done; parked; put back by an operator. A layout change is PREPARED and
COMMITTED under a queue."""
CHECKPOINT: Final = ("saved", "reported", "checkpoint_committed")
"""Rows are in the reader's store; reported. A layout change is COMMITTED under a reader with a store."""
STEPS: Final = (*STREAM, *QUEUE, *CHECKPOINT)

MODES: Final = {
    **dict.fromkeys(STREAM, "stream"),
    **dict.fromkeys(QUEUE, "queue"),
    **dict.fromkeys(CHECKPOINT, "checkpoint"),
}
LAYOUT: Final = frozenset(
    {
        *("prepared", "sealing", "committed", "drained", "heir_committed"),
        *("queue_prepared", "queue_committed", "checkpoint_committed"),
    }
)
"""Steps of a cohort under a split, or by the seed under a merge."""
SEEKS: Final = frozenset({"sought", "begun"})

MACHINES: Final = ("owner", "leader", "home")
"""The owner of the gate; the leader of the controller; the node at which the holder joined."""
OWNERS: Final = ("lags", "full")
"""More harms of owners: the metadata does not come to it; its disk is full."""
MEMBERS: Final = ("holder", "waiter")
"""The member that has the partition, or had it last; the other one, or the same where there is one."""
MEMBER_HARMS: Final = (
    *(("kill", "short"), ("kill", "long")),
    *(("pause", "short"), ("pause", "lease"), ("pause", "long")),
    *(("partition", "short"), ("partition", "long")),
    *(("answers_late", "short"), ("answers_late", "lease")),
    *(("requests_late", "short"), ("requests_late", "lease")),
    *(("hang_up", "short"), ("takeover", "short"), ("busy", "long")),
)
"""`takeover`: a second process of its name begins, and the first goes on. `busy`: its application works on
one batch for longer than a hand-over waits."""
MEMBER_SPANS_US: Final = {"short": 2_000_000, "lease": 11_000_000, "long": 15_000_000}
"""Shorter than the lease of a holder (10 s); longer than it, within the grace (12 s); longer than both."""
QUIET: Final = Cell("none", "nobody", "nothing", "short")
"""Nobody is struck."""


def cells() -> list[Cell]:
    """Each step with each harm."""
    return [cell for step in STEPS for cell in cells_of_step(step)]


def cells_of_step(step: str) -> Iterator[Cell]:
    for span in SPANS_US:
        yield from (Cell(step, victim, harm, span) for victim in MACHINES for harm in HARMS)
        yield from (Cell(step, "owner", harm, span) for harm in OWNERS)
        yield Cell(step, "control", "away", span)
        if step in LAYOUT:
            yield from (Cell(step, "rows_owner", harm, span) for harm in HARMS)
    yield from (Cell(step, victim, *harm) for victim in MEMBERS for harm in MEMBER_HARMS)


def span_us(cell: Cell) -> int:
    """How long the harm lasts."""
    return MEMBER_SPANS_US[cell.span] if cell.victim in MEMBERS else SPANS_US[cell.span]
