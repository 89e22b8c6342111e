"""Access layouts through the admin API: changes with their waits, lineage, open layout changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from ringfence.control.cli.admin import Admin, http_options, topic_path
from ringfence.native.errors import AlreadyExistsError, UnknownOutcomeError, WaitTimeoutError

# Interval of looks at a change that is not decided yet, and of tries of one that another change excludes.
POLL_S: Final = 0.2
RETRY_S: Final = 1.0
# Time that an answer may take beside the wait for the change, in seconds.
ANSWER_S: Final = 10.0
# Longest wait that one request asks for; the command looks at the layout after it.
REQUEST_WAIT_S: Final = 10.0

timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=ANSWER_S,
    show_default=True,
    help="Seconds to wait for an answer of a node.",
)


class LayoutApi:
    """The interface of the commands. Methods raise RingfenceError."""

    def __init__(self, http: str | None, token_file: Path | None, timeout_s: float) -> None:
        self._admin = Admin(http, token_file, timeout_s)
        self._waiting_admin = Admin(http, token_file, timeout_s + REQUEST_WAIT_S)

    def preview(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the change would prepare; nothing is changed."""
        shown: dict[str, Any] = self._admin.change("POST", f"{path}?preview=true", body)
        return shown

    def change(self, topic: str, path: str, body: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """Begin a change, and wait for its end for `wait_s`.

        Raises:
            WaitTimeoutError: it is neither committed nor aborted by then.
        """
        end = time.monotonic() + wait_s
        asked_s = min(wait_s, REQUEST_WAIT_S)
        shown: dict[str, Any] = self._waiting_admin.change("POST", path, {**body, "wait_s": asked_s})
        if not wait_s:
            return shown
        while shown["phase"] in {"PREPARED", "HELD", "RUNNING"}:
            if time.monotonic() >= end:
                raise WaitTimeoutError(
                    f"layout change {shown['change']} is {shown['phase']} after {wait_s:g} s and goes on; "
                    "`ringfence topic transitions` shows what it waits for"
                )
            time.sleep(POLL_S)
            shown = self._progress(topic, shown["change"])
        return shown

    def repartition(self, topic: str, path: str, body: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """Like `change`; a refusal for another change of the topic is tried again within the time."""
        end = time.monotonic() + wait_s
        while True:
            try:
                return self.change(topic, path, body, max(0.0, end - time.monotonic()))
            except AlreadyExistsError:
                if time.monotonic() + RETRY_S >= end or not self._is_busy(topic):
                    raise
            time.sleep(RETRY_S)

    def _is_busy(self, topic: str) -> bool:
        """Whether another change of the topic is open, which explains a refusal."""
        layout = self.layout(topic)
        return bool(layout["transitions"]) or any(part["change"] for part in layout["partitions"])

    def _progress(self, topic: str, change: int) -> dict[str, Any]:
        """The change as the layout shows it now. UnknownOutcomeError: it ended without effect."""
        layout = self.layout(topic)
        for transition in layout["transitions"]:
            if transition["change"] == change:
                return {"change": change, "kind": transition["kind"], "phase": transition["phase"]} | (
                    _committed(layout, change) if transition["phase"] not in {"PREPARED", "HELD"} else {}
                )
        committed = _committed(layout, change)
        if committed["partitions"]:
            return {"change": change, "kind": None, "phase": "COMMITTED"} | committed
        raise UnknownOutcomeError(
            f"layout change {change} was aborted, or its children were changed again; "
            f"`ringfence topic layout {topic}` shows the layout"
        )

    def layout(self, topic: str) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get(f"{topic_path(topic)}/layout?linearizable=true")
        return values

    def partition(self, topic: str, partition: str) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get(f"{topic_path(topic)}/partitions/{partition}")
        return values

    def topic_of(self, partition: int) -> str:
        """The full name of the topic that has the partition."""
        return str(self._admin.get(f"/admin/partitions/{partition}")["name"])

    def transitions(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = self._admin.get("/admin/transitions")["transitions"]
        return shown

    def abort(self, change: int, why: str) -> None:
        self._admin.change("POST", f"/admin/transitions/{change}/abort", {"why": why})


def layout_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--http`, `--token-file` and `--timeout` to a command; the command gets an `api`."""

    def with_api(
        *arguments: Any, http: str | None, token_file: Path | None, timeout_s: float, **options: Any
    ) -> Any:
        return function(*arguments, api=LayoutApi(http, token_file, timeout_s), **options)

    with_api.__name__, with_api.__doc__ = function.__name__, function.__doc__
    with_api.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return http_options(timeout_option(with_api))


def _committed(layout: dict[str, Any], change: int) -> dict[str, Any]:
    """Version and children of a committed change: their ids are drawn from its number."""
    children = [part for part in layout["partitions"] if part["partition"] >> 16 == change]
    version = children[0]["created_version"] if children else layout["version"]
    return {"version": version, "partitions": children}
