"""Arguments of a consumer, and what its parts get of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ringfence.consumer.settings import IDLE_S, Settings, drawn_name, seek_request
from ringfence.consumer.values import ConsumerPlace, Point, TaskKind
from ringfence.native.errors import InvalidArgumentError, PositionError

TOKEN = "1:30:500:4:9"


def settings(**options: Any) -> Settings:
    return Settings(topic="t", cohort="c", **options).check()


def test_names_are_drawn_once_and_are_valid() -> None:
    name = drawn_name()
    assert re.fullmatch(r"[A-Za-z0-9_.-]{14,64}", name)
    assert name != drawn_name()
    one, two = settings().options(), settings().options()
    assert one.instance != two.instance
    assert len(one.instance) == 16
    assert settings(member="m").options().name == "m"


def test_auto_and_manual_differ_in_who_acknowledges_and_in_idle_wake_ups() -> None:
    assert (settings().is_auto, settings().idle) == (True, None)
    assert (settings(ack="manual").is_auto, settings(ack="manual").idle) == (False, IDLE_S)
    assert settings(ack="manual", idle_s=5).idle == 5
    checkpoint = settings(mode="checkpoint", positions={}, report=False)
    assert (checkpoint.is_auto, checkpoint.idle, checkpoint.options().is_checkpoint) == (False, IDLE_S, True)


def test_the_member_is_told_which_callbacks_there_are() -> None:
    one = settings(on_drain=print, on_lost=len)
    assert one.options().tells == {TaskKind.DRAIN, TaskKind.LOST}
    assert one.callback(TaskKind.LOST) is len


def test_positions_come_from_a_mapping_or_a_function() -> None:
    mapping = settings(mode="checkpoint", positions={30: TOKEN})
    assert mapping.position(30) == Point(500, 4)
    assert mapping.position(31) is None
    function = settings(mode="checkpoint", positions=lambda partition: TOKEN if partition == 30 else None)
    assert function.position(30) == Point(500, 4)
    with pytest.raises(PositionError, match="the position of another partition"):
        settings(mode="checkpoint", positions={31: TOKEN}).position(31)


def test_a_seek_takes_words_offsets_and_tokens() -> None:
    def seek(to: Any, **options: Any) -> Any:
        given = {"rest": None, "forget_parked": False, "wait": True, **options}
        return seek_request("t", "c", to, **given)

    assert seek("earliest").to == "earliest"
    assert seek({31: 7, 30: 5}).positions == [(30, 5, 0), (31, 7, 0)]
    assert seek([TOKEN, ConsumerPlace(31, 0, 7, 2, 1)]).positions == [(30, 500, 4), (31, 7, 2)]
    assert seek([(30, 5, 1), (31, 6)], rest="latest").rest == "latest"
    assert seek("latest").key != seek("latest").key
    with pytest.raises(InvalidArgumentError, match="to must be one of"):
        seek("middle")
    with pytest.raises(InvalidArgumentError, match="rest must be one of"):
        seek({}, rest="none")
