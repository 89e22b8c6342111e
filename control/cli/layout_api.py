"""Access layouts through the admin API or a control address: changes with waits, lineage, explanations."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from ringfence.control.cli.admin import topic_path
from ringfence.control.cli.endpoint import Endpoint, control_options
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.layout_messages import ChangeLayout, ExplainLayout, ShowTransitions
from ringfence.native.errors import AlreadyExistsError, UnknownOutcomeError, WaitTimeoutError

# Interval of looks at a change that is not decided yet, and of tries of one that another change excludes.
POLL_S: Final = 0.2
RETRY_S: Final = 1.0
# Longest wait that one request asks for; the command looks at the layout after it.
REQUEST_WAIT_S: Final = 10.0


class Wish(NamedTuple):
    """A layout change that a command asks for. `into` 0: two parts, or as `at` says."""

    topic: str
    verb: str
    partitions: tuple[str, ...] = ()
    at: tuple[int, ...] = ()
    into: int = 0
    even: bool = False

    @property
    def path(self) -> str:
        """The resource of the admin API."""
        return "/".join((topic_path(self.topic), self.verb, *self.partitions))

    @property
    def body(self) -> dict[str, Any]:
        """The body of the admin API."""
        if self.verb == "repartition":
            return {"partitions": self.into, "even": self.even}
        if self.verb == "merge":
            return {}
        return {"at": list(self.at)} if self.at else {"into": self.into} if self.into else {}


class _Door(Protocol):
    """The admin API, or the control address of a node. Both return the same values."""

    def preview(self, wish: Wish) -> dict[str, Any]: ...
    def begin(self, wish: Wish, wait_s: float) -> dict[str, Any]: ...
    def layout(self, topic: str) -> dict[str, Any]: ...
    def partition(self, topic: str, partition: str) -> dict[str, Any]: ...
    def topic_of(self, partition: int) -> str: ...
    def transitions(self) -> dict[str, Any]: ...
    def abort(self, change: int, why: str) -> None: ...
    def explain(self, topic: str) -> dict[str, Any]: ...
    def set_auto(self, topic: str, values: dict[str, int | None]) -> None: ...


class LayoutApi:
    """The interface of the commands. Methods raise RingfenceError."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._door: _Door = _Http(endpoint) if endpoint.control is None else _Control(endpoint)
        self.preview, self.layout, self.partition = (
            self._door.preview,
            self._door.layout,
            self._door.partition,
        )
        self.topic_of, self.transitions, self.abort = (
            self._door.topic_of,
            self._door.transitions,
            self._door.abort,
        )
        self.explain, self.set_auto = self._door.explain, self._door.set_auto

    def change(self, wish: Wish, wait_s: float) -> dict[str, Any]:
        """Begin a change, and wait for its end for `wait_s`.

        Raises:
            WaitTimeoutError: it is neither committed nor aborted by then.
        """
        end = time.monotonic() + wait_s
        shown = self._door.begin(wish, min(wait_s, REQUEST_WAIT_S))
        if not wait_s:
            return shown
        while shown["phase"] in {"PREPARED", "HELD", "RUNNING"}:
            if time.monotonic() >= end:
                raise WaitTimeoutError(
                    f"layout change {shown['change']} is {shown['phase']} after {wait_s:g} s and goes on; "
                    "`ringfence topic transitions` shows what it waits for"
                )
            time.sleep(POLL_S)
            shown = self._progress(wish.topic, shown["change"])
        return shown

    def repartition(self, wish: Wish, wait_s: float) -> dict[str, Any]:
        """Like `change`; a refusal for another change of the topic is tried again within the time."""
        end = time.monotonic() + wait_s
        while True:
            try:
                return self.change(wish, max(0.0, end - time.monotonic()))
            except AlreadyExistsError:
                if time.monotonic() + RETRY_S >= end or not self._is_busy(wish.topic):
                    raise
            time.sleep(RETRY_S)

    def _is_busy(self, topic: str) -> bool:
        """Whether another change of the topic is open, which explains a refusal."""
        layout = self.layout(topic)
        return bool(layout["transitions"]) or any(part["change"] for part in layout["partitions"])

    def _progress(self, topic: str, change: int) -> dict[str, Any]:
        """The change as the layout shows it now.

        Raises:
            AlreadyExistsError: it was aborted. UnknownOutcomeError: it has left no trace.
        """
        layout = self.layout(topic)
        for transition in layout["transitions"]:
            if transition["change"] == change:
                return {"change": change, "kind": transition["kind"], "phase": transition["phase"]} | (
                    _committed(layout, change) if transition["phase"] not in {"PREPARED", "HELD"} else {}
                )
        committed = _committed(layout, change)
        if committed["partitions"]:
            return {"change": change, "kind": None, "phase": "COMMITTED"} | committed
        why = self.transitions().get("aborted", {}).get(str(change))
        if why is not None:
            raise AlreadyExistsError(
                f"layout change {change} was aborted, nothing has changed: {why}. Ask again"
            )
        raise UnknownOutcomeError(
            f"layout change {change} was aborted, or its children were changed again; "
            f"`ringfence topic layout {topic}` shows the layout"
        )


class _Http:
    def __init__(self, endpoint: Endpoint) -> None:
        self._admin = endpoint.admin()
        # An answer may take the timeout beside the wait for the change.
        waiting = dataclasses.replace(endpoint, timeout_s=endpoint.timeout_s + REQUEST_WAIT_S)
        self._waiting_admin = waiting.admin()

    def preview(self, wish: Wish) -> dict[str, Any]:
        """What the change would prepare; nothing is changed."""
        shown: dict[str, Any] = self._admin.change("POST", f"{wish.path}?preview=true", wish.body)
        return shown

    def begin(self, wish: Wish, wait_s: float) -> dict[str, Any]:
        body = {**wish.body, "wait_s": wait_s}
        shown: dict[str, Any] = self._waiting_admin.change("POST", wish.path, body)
        return shown

    def layout(self, topic: str) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get(f"{topic_path(topic)}/layout?linearizable=true")
        return values

    def partition(self, topic: str, partition: str) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get(f"{topic_path(topic)}/partitions/{partition}")
        return values

    def topic_of(self, partition: int) -> str:
        """The full name of the topic that has the partition."""
        return str(self._admin.get(f"/admin/partitions/{partition}")["name"])

    def transitions(self) -> dict[str, Any]:
        """Open layout changes, and the newest ones that have ended."""
        shown: dict[str, Any] = self._admin.get("/admin/transitions")
        return shown

    def abort(self, change: int, why: str) -> None:
        self._admin.change("POST", f"/admin/transitions/{change}/abort", {"why": why})

    def explain(self, topic: str) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get(f"{topic_path(topic)}/explain?linearizable=true")
        return values

    def set_auto(self, topic: str, values: dict[str, int | None]) -> None:
        self._admin.change("PATCH", f"{topic_path(topic)}/auto", {"values": values})


class _Control:
    def __init__(self, endpoint: Endpoint) -> None:
        assert endpoint.control is not None
        self._address, self._timeout_s = endpoint.control, endpoint.timeout_s

    def preview(self, wish: Wish) -> dict[str, Any]:
        return self._ask(_call(wish, preview=True))

    def begin(self, wish: Wish, wait_s: float) -> dict[str, Any]:
        # A node that is not there is told after the timeout, not after the wait for the change as well.
        self.transitions()
        # The node answers within the time for one question; the command looks at the layout after it.
        return self._ask(_call(wish, wait_ms=round(wait_s * 1_000)), self._timeout_s + wait_s)

    def layout(self, topic: str) -> dict[str, Any]:
        return self._ask(ChangeLayout(verb="layout", topic=topic))

    def partition(self, topic: str, partition: str) -> dict[str, Any]:
        return self._ask(ChangeLayout(verb="partition", topic=topic, partitions=(partition,)))

    def topic_of(self, partition: int) -> str:
        return str(self._ask(messages.ShowPartition(partition=partition))["name"])

    def transitions(self) -> dict[str, Any]:
        return self._ask(ShowTransitions())

    def abort(self, change: int, why: str) -> None:
        self._ask(ChangeLayout(verb="abort", change=change, why=why))

    def explain(self, topic: str) -> dict[str, Any]:
        return self._ask(ExplainLayout(topic=topic))

    def set_auto(self, topic: str, values: dict[str, int | None]) -> None:
        self._ask(ChangeLayout(verb="auto", topic=topic, auto=values))

    def _ask(self, call: messages.Call, timeout_s: float | None = None) -> dict[str, Any]:
        return ask_values(self._address, call, self._timeout_s if timeout_s is None else timeout_s)


def _call(wish: Wish, *, wait_ms: int = 0, preview: bool = False) -> ChangeLayout:
    return ChangeLayout(
        verb=wish.verb,
        topic=wish.topic,
        partitions=wish.partitions,
        at=wish.at,
        into=wish.into,
        even=wish.even,
        wait_ms=wait_ms,
        preview=preview,
    )


def layout_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `control_options` to a command; it gets an `api` instead of the endpoint."""

    @functools.wraps(function)
    def with_api(*arguments: Any, endpoint: Endpoint, **options: Any) -> Any:
        return function(*arguments, api=LayoutApi(endpoint), **options)

    return control_options(with_api)


def _committed(layout: dict[str, Any], change: int) -> dict[str, Any]:
    """Version and children of a committed change: their ids are drawn from its number."""
    children = [part for part in layout["partitions"] if part["partition"] >> 16 == change]
    version = children[0]["created_version"] if children else layout["version"]
    return {"version": version, "partitions": children}
