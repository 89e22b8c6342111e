"""How Spark's writers begin their scopes: what may make room for others, and when."""

from __future__ import annotations

from typing import Any, Self

import pytest

from ringfence.spark import staging
from ringfence.spark.staging import QUERY_IDLE_S, Target


class Begins:
    """A client that keeps what it is asked to begin."""

    def __init__(self) -> None:
        self.scopes, self.asked = self, list[tuple[str, str | None, bool, int | None]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(
        self,
        scope: str,
        _instance: bytes = b"",
        *,
        topic: str | None = None,
        one_off: bool = False,
        idle_s: int | None = None,
    ) -> None:
        self.asked.append((scope, topic, one_off, idle_s))


def test_a_job_without_a_name_and_an_idle_query_make_room_and_a_named_job_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins = Begins()

    def connected(*_: Any, **__: Any) -> Begins:
        return begins

    monkeypatch.setattr(staging, "connect", connected)
    target = Target("tcp://127.0.0.1:1", None, "t", 30.0)
    target.begin(None, "spark-batch")
    target.begin("nightly", "spark-batch")
    target.begin("nightly", "spark-batch", query="q-1")
    target.begin_query("spark-query-q-1", b"run")
    unnamed, *named = begins.asked
    assert unnamed[1:] == ("t", True, None)
    assert named == [
        ("nightly", "t", False, None),
        ("nightly-q-1", "t", False, QUERY_IDLE_S),
        ("spark-query-q-1", None, False, QUERY_IDLE_S),
    ]
