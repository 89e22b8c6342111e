"""Access layouts through the admin API: changes with their waits, lineage, open layout changes."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Final

from ringfence.control.cli.admin import topic_path
from ringfence.control.cli.endpoint import Endpoint, cluster_options
from ringfence.native.errors import AlreadyExistsError, UnknownOutcomeError, WaitTimeoutError

# Interval of looks at a change that is not decided yet, and of tries of one that another change excludes.
POLL_S: Final = 0.2
RETRY_S: Final = 1.0
# Longest wait that one request asks for; the command looks at the layout after it.
REQUEST_WAIT_S: Final = 10.0


class LayoutApi:
    """The interface of the commands. Methods raise RingfenceError."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._admin = endpoint.admin()
        # An answer may take the timeout beside the wait for the change.
        waiting = dataclasses.replace(endpoint, timeout_s=endpoint.timeout_s + REQUEST_WAIT_S)
        self._waiting_admin = waiting.admin()

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
    """Add the options of `cluster_options` to a command; it gets an `api` instead of the endpoint."""

    @functools.wraps(function)
    def with_api(*arguments: Any, endpoint: Endpoint, **options: Any) -> Any:
        return function(*arguments, api=LayoutApi(endpoint), **options)

    return cluster_options(with_api)


def _committed(layout: dict[str, Any], change: int) -> dict[str, Any]:
    """Version and children of a committed change: their ids are drawn from its number."""
    children = [part for part in layout["partitions"] if part["partition"] >> 16 == change]
    version = children[0]["created_version"] if children else layout["version"]
    return {"version": version, "partitions": children}
