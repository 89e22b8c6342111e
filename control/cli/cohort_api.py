"""Access cohorts through the admin API, page by page; resolve a time through the data socket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from ringfence.control.cli.admin import Admin, topic_path
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.endpoint import Endpoint

# A cohort, a member or a partition as the admin API shows it.
Shown = dict[str, Any]
# Bytes of a file with positions: as many as one seek takes.
FILE_BYTES_MAX: Final = 4 << 20
# Parked ranges that one request names.
ITEMS_A_REQUEST: Final = 4096


class CohortApi:
    """The interface of the commands. Methods raise RingfenceError."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._admin: Admin = endpoint.admin()

    def topics(self) -> list[str]:
        """Names of all topics that the token may see."""
        names: list[str] = []
        while True:
            after = quote(names[-1]) if names else ""
            page = self._admin.get(f"/admin/topics?limit=1000&after={after}")
            names += [topic["name"] for topic in page["topics"]]
            if not page["more"]:
                return names

    def cohorts(self, topic: str) -> list[Shown]:
        found: list[Shown] = []
        while True:
            after = quote(found[-1]["cohort"]) if found else ""
            page = self._admin.get(f"{topic_path(topic)}/subscriptions?after={after}")
            found += page["cohorts"]
            if not page["more"]:
                return found

    def cohort(self, topic: str, name: str) -> Shown:
        """The cohort with all of its partitions."""
        shown: Shown = self._admin.get(_path(topic, name))
        while shown["more"]:
            after = shown["partitions"][-1]["partition"]
            page = self._admin.get(f"{_path(topic, name)}?after={after}")
            shown["partitions"] += page["partitions"]
            shown["more"] = page["more"]
        return shown

    def declare(self, topic: str, name: str, values: Shown, *, version: int | None = None) -> Shown:
        """Create the cohort, or declare its settings as of `version`."""
        condition = None if version is None else f'"{version}"'
        declared: Shown = self._admin.change("PUT", _path(topic, name), values, condition=condition)
        return declared

    def delete(self, topic: str, name: str) -> None:
        self._admin.change("DELETE", _path(topic, name))

    def evict(self, topic: str, name: str, member: str) -> None:
        self._admin.change("DELETE", f"{_path(topic, name)}/members/{quote(member, safe='')}")

    def seek(self, topic: str, name: str, values: Shown) -> Shown:
        sought: Shown = self._admin.change("POST", f"{_path(topic, name)}/seek", values)
        return sought

    def parked(self, topic: str, name: str) -> tuple[list[Shown], list[int]]:
        """What a queue has parked, and the partitions whose owners do not answer."""
        found: list[Shown] = []
        unknown: set[int] = set()
        while True:
            after = f"{found[-1]['partition']}:{found[-1]['number']}" if found else ""
            page = self._admin.get(f"{_path(topic, name)}/parked?after={after}")
            found += page["parked"]
            unknown.update(page["unknown"])
            if not page["more"] or not page["parked"]:
                return found, sorted(unknown)

    def settle_parked(
        self, action: str, topic: str, name: str, items: Sequence[tuple[int, int]], *, force: bool
    ) -> Shown:
        """`retry` or `discard` ranges; without any, all."""
        path = f"{_path(topic, name)}/parked/{action}"
        outcome: Shown = {}
        if not items:
            settled: Shown = self._admin.change("POST", path, {"all": True, "force": force})
            return settled
        for at in range(0, len(items), ITEMS_A_REQUEST):
            part = [list(item) for item in items[at : at + ITEMS_A_REQUEST]]
            settled = self._admin.change("POST", path, {"items": part, "force": force})
            outcome = {key: outcome[key] + value for key, value in settled.items()} if outcome else settled
        return outcome


def _path(topic: str, name: str) -> str:
    return f"{topic_path(topic)}/subscriptions/{quote(name, safe='')}"


def positions_at(endpoint: Endpoint, topic: str, moment: datetime) -> list[Shown]:
    """Positions of all partitions at a time, by the data socket of a node."""
    assert endpoint.address is not None, "the command has --address, with a default"
    with open_client(endpoint.address, endpoint.timeout_s, endpoint.token_file) as client:
        return [
            {"partition": position.partition, "offset": position.offset, "epoch": position.epoch}
            for position in client.positions_at(topic, moment)
        ]


def moment_of(text: str) -> datetime:
    """The time of `--time`. UsageError unless it is an ISO time with zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--time {text!r}: expected a time as 2026-01-31T12:00+00:00") from None
    if moment.tzinfo is None:
        zoned = moment.replace(tzinfo=UTC).isoformat()
        raise click.UsageError(f"--time {text}: a time needs a time zone, for example {zoned}")
    return moment


def read_positions(path: Path) -> list[Shown]:
    """Positions of a file, one JSON object a line: partition, offset, and epoch if it is known."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise click.UsageError(f"--positions {path}: larger than {FILE_BYTES_MAX} bytes")
    found: list[Shown] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            found.append(
                {
                    "partition": int(values["partition"]),
                    "offset": int(values["offset"]),
                    "epoch": int(values.get("epoch", 0)),
                }
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f'--positions {path}, line {number}: expected {{"partition": 7, "offset": 42}}'
            raise click.UsageError(message) from error
    if not found:
        raise click.UsageError(f"--positions {path}: no position is in it")
    return found
