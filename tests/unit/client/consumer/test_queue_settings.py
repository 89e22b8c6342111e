"""Arguments of a QUEUE, and those that it has not."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.consumer.settings import Settings
from ringfence.native import cohort_messages as cohort
from ringfence.native.errors import InvalidArgumentError


def settings(**given: Any) -> Settings:
    return Settings(**({"topic": "t", "cohort": "c", "mode": "queue"} | given)).check()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "stream", "limit": 3}, 'limit is for mode="queue"'),
        ({"mode": "stream", "rows_max": 3}, 'rows_max is for mode="queue"'),
        ({"mode": "stream", "dead_letter": "u"}, 'dead_letter is for mode="queue"'),
        ({"on_drain": print}, "on_drain has no meaning"),
        ({"on_assigned": print}, "its members have no partitions"),
        ({"rows_max": 0}, "rows_max must be 1 .. 65536"),
        ({"limit": 101}, "limit must be 0 .. 100"),
        ({"lease_s": 0.5}, "lease_s must be 1 .. 3600"),
        ({"positions": {}}, "positions is required"),
    ],
)
def test_what_has_no_meaning_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        settings(**given)


def test_settings_of_a_new_cohort_go_with_join() -> None:
    def joined(**given: Any) -> cohort.CohortSettings | None:
        made = settings(**given)
        return made.identity("t", made.options()).settings

    assert joined() is None
    assert joined(limit=2) == cohort.CohortSettings(limit=2)
    assert joined(lease_s=1.5) == cohort.CohortSettings(lease_ms=1500)
    assert settings(rows_max=7).options().rows_max == 7
    assert settings(ack="manual").idle is None, "a queue does not wait for what is gathered"
