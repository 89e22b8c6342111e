"""Arguments of `client.consumer(...)`, checked, and how the parts of a consumer are made from them."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ringfence.common.arguments import seconds, whole
from ringfence.consumer.link import Identity
from ringfence.consumer.queue_settings import check_queue, queue_settings
from ringfence.consumer.values import ConsumerPlace, MemberOptions, Mode, Point, TaskKind
from ringfence.native import cohort_messages as cohort
from ringfence.native.errors import InvalidArgumentError, PositionError

Positions = Mapping[int, str | None] | Callable[[int], str | None]
Told = Callable[[list[int]], Any]
IDLE_S: Final = 1.0
LABEL: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
MODES: Final = ("stream", "queue", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """See `Client.consumer`."""

    topic: str
    cohort: str
    mode: Mode = "stream"
    member: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    ack: Literal["auto", "manual"] = "auto"
    report: bool = True
    ack_interval_s: float = 0.2
    idle_s: float | None = None
    takeover: bool = False
    work_timeout_s: float | None = None
    positions: Positions | None = None
    on_truncated: Literal["raise", "skip"] = "raise"
    bytes_in_flight_max: int = 64 << 20
    rows_max: int | None = None
    limit: int | None = None
    lease_s: float | None = None
    dead_letter: str | None = None
    on_assigned: Told | None = None
    on_revoked: Told | None = None
    on_lost: Told | None = None
    on_drain: Told | None = None

    def check(self) -> Settings:
        """Refuse what cannot be served. Returns itself.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        _one_of("mode", self.mode, MODES)
        _one_of("start", self.start, ("earliest", "latest"))
        _one_of("ack", self.ack, ("auto", "manual"))
        _one_of("on_truncated", self.on_truncated, ("raise", "skip"))
        _label("cohort", self.cohort)
        if self.member is not None:
            _label("member", self.member)
        check_queue(self)
        if (self.mode == "checkpoint") != (self.positions is not None):
            raise InvalidArgumentError(
                'positions is required in mode="checkpoint", and has no meaning in others: there the cohort '
                "keeps the positions",
                mode=self.mode,
            )
        whole("bytes_in_flight_max", self.bytes_in_flight_max, 1 << 20)
        seconds("ack_interval_s", self.ack_interval_s)
        for name, given in (("idle_s", self.idle_s), ("work_timeout_s", self.work_timeout_s)):
            if given is not None:
                seconds(name, given)
        return self

    @property
    def is_auto(self) -> bool:
        """Whether asking for the next batch acknowledges, or reports, the ones before."""
        return self.report if self.mode == "checkpoint" else self.ack == "auto"

    @property
    def idle(self) -> float | None:
        """Seconds after which iteration gives None; None: it waits."""
        if self.idle_s is not None or self.is_auto or self.mode == "queue":
            return self.idle_s
        return IDLE_S

    def callback(self, kind: TaskKind) -> Told | None:
        return {
            TaskKind.ASSIGNED: self.on_assigned,
            TaskKind.REVOKED: self.on_revoked,
            TaskKind.LOST: self.on_lost,
            TaskKind.DRAIN: self.on_drain,
        }.get(kind)

    def options(self) -> MemberOptions:
        """What the member needs of it. Draws its instance."""
        return MemberOptions(
            name=self.member if self.member is not None else drawn_name(),
            instance=secrets.token_bytes(16),
            is_checkpoint=self.mode == "checkpoint",
            is_auto=self.is_auto,
            takeover=self.takeover,
            work_timeout_s=self.work_timeout_s,
            skips=self.on_truncated == "skip",
            bytes_max=self.bytes_in_flight_max,
            interval_s=self.ack_interval_s,
            tells=frozenset(kind for kind in TaskKind if self.callback(kind) is not None),
            rows_max=self.rows_max or 0,
            is_named=self.member is not None,
        )

    def identity(self, topic: str, options: MemberOptions) -> Identity:
        """What JOIN says."""
        settings = queue_settings(self) if self.mode == "queue" else None
        return Identity(topic, self.cohort, self.mode, options.name, options.instance, self.start, settings)

    def position(self, partition: int) -> Point | None:
        """Where the application's store is in a partition; None: it has nothing of it.

        Raises:
            PositionError: the store names another partition.
        """
        positions = self.positions
        assert positions is not None
        token = positions.get(partition) if isinstance(positions, Mapping) else positions(partition)
        if token is None:
            return None
        place = ConsumerPlace.parse(token)
        if place.partition != partition:
            raise PositionError(
                "the store gives the position of another partition", partition=partition, token=token
            )
        return place.end


def drawn_name() -> str:
    """A member name that no other process has: host and 12 random hexadecimal digits."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname() or "host")[:40]
    return f"{host}-{secrets.token_hex(6)}"


def _label(argument: str, given: object) -> None:
    if not isinstance(given, str) or not LABEL.fullmatch(given):
        raise InvalidArgumentError(
            f"{argument} must have 1 to 64 letters, digits, '_', '.' and '-', all ASCII", given=repr(given)
        )


def _one_of(argument: str, given: object, known: Iterable[str]) -> None:
    if given not in tuple(known):
        raise InvalidArgumentError(
            f"{argument} must be one of {', '.join(map(repr, known))}", given=repr(given)
        )


def seek_request(
    topic: str,
    cohort_name: str,
    to: str | Mapping[int, int] | Iterable[str | ConsumerPlace | tuple[int, ...]],
    *,
    rest: str | None,
    forget_parked: bool,
    wait: bool,
) -> cohort.CohortSeek:
    """The request of a seek.

    Raises:
        InvalidArgumentError: `to` is none of "earliest", "latest", or positions.
    """
    fields: dict[str, Any] = {
        "topic": topic,
        "cohort": cohort_name,
        "forget_parked": forget_parked,
        "wait": wait,
    }
    if rest is not None:
        _one_of("rest", rest, ("earliest", "latest"))
        fields["rest"] = rest
    fields["key"] = f"{os.getpid()}-{secrets.token_hex(12)}"
    if isinstance(to, str):
        _one_of("to", to, ("earliest", "latest"))
        return cohort.CohortSeek(to=to, **fields)
    return cohort.CohortSeek(to="positions", positions=_positions(to), **fields)


def _positions(
    to: Mapping[int, int] | Iterable[str | ConsumerPlace | tuple[int, ...]],
) -> list[tuple[int, int, int]]:
    if isinstance(to, Mapping):
        return [
            (whole("partition", one, 0), whole("offset", offset, 0), 0) for one, offset in sorted(to.items())
        ]
    found = []
    for one in to:
        if isinstance(one, str):
            one = ConsumerPlace.parse(one)  # noqa: PLW2901
        if isinstance(one, ConsumerPlace):
            found.append((one.partition, *one.end))
        else:
            partition, offset, *epoch = one
            found.append((partition, offset, epoch[0] if epoch else 0))
    return sorted(found)
