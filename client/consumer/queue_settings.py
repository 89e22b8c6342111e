"""Arguments of `client.consumer(...)` that have a meaning in one kind of mode only: QUEUE, or the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.common.arguments import seconds, whole
from ringfence.native import cohort_messages as cohort
from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.consumer.settings import Settings

LIMIT_MAX: Final = 100
LEASE_S_MIN, LEASE_S_MAX = 1.0, 3600.0
ROWS_MAX: Final = 65_536  # of one lease


def check_queue(settings: Settings) -> None:
    """Refuse arguments that have no meaning in the mode.

    Raises:
        InvalidArgumentError: it names the argument.
    """
    of_queue = {
        "rows_max": settings.rows_max,
        "limit": settings.limit,
        "lease_s": settings.lease_s,
        "dead_letter": settings.dead_letter,
    }
    if settings.mode != "queue":
        _absent(of_queue, settings.mode, 'is for mode="queue"')
        return
    of_others = {
        "on_assigned": settings.on_assigned,
        "on_revoked": settings.on_revoked,
        "on_drain": settings.on_drain,
    }
    _absent(of_others, settings.mode, 'has no meaning in mode="queue": its members have no partitions')
    if settings.rows_max is not None:
        whole("rows_max", settings.rows_max, 1, ROWS_MAX)
    if settings.limit is not None:
        whole("limit", settings.limit, 0, LIMIT_MAX)
    if settings.lease_s is not None and not (
        LEASE_S_MIN <= seconds("lease_s", settings.lease_s) <= LEASE_S_MAX
    ):
        raise InvalidArgumentError(
            f"lease_s must be {LEASE_S_MIN:g} .. {LEASE_S_MAX:g}", lease_s=settings.lease_s
        )


def _absent(arguments: Mapping[str, object], mode: str, why: str) -> None:
    for name, given in arguments.items():
        if given is not None:
            raise InvalidArgumentError(f"{name} {why}", mode=mode)


def queue_settings(settings: Settings) -> cohort.CohortSettings | None:
    """The settings of a cohort that JOIN creates; None: the usual ones."""
    if settings.limit is None and settings.lease_s is None:
        return None
    usual = cohort.CohortSettings()
    return cohort.CohortSettings(
        lease_ms=usual.lease_ms if settings.lease_s is None else int(1000 * settings.lease_s),
        limit=usual.limit if settings.limit is None else settings.limit,
    )
