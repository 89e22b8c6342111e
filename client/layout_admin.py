"""Change layouts: split, merge, repartition, and the settings of automatic changes. See `Client.admin`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ringfence.common.arguments import whole
from ringfence.native import layout_messages, wire
from ringfence.native.errors import ConflictError, InvalidArgumentError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.admin import Admin
    from ringfence.native.messages import PartitionEntry

# Longest wait that one request asks for; the client asks again after it.
REQUEST_WAIT_S: Final = 5.0
POLL_S: Final = 0.2
KEY_BYTES: Final = 16
# Phases in which the layout is the one before.
UNDECIDED: Final = frozenset({"PREPARED", "HELD", "RUNNING"})


class LayoutChange(msgspec.Struct, frozen=True, kw_only=True):
    """A layout change. `change` is 0 where nothing had to be changed, and in a preview.

    `partitions` are the new ones, once the change is committed; `gap_us` is the time during which no
    partition took rows of these slots, 0 if it is not known. `would`, of a preview: first slot, last slot and
    nodes of each new partition.
    """

    change: int
    kind: str = ""
    phase: str = ""
    version: int = 0
    partitions: tuple[PartitionEntry, ...] = ()
    gap_us: int = 0
    would: tuple[tuple[int, int, list[int]], ...] = ()


class LayoutAdmin:
    """The layout changes of a client. All raise ConnectError if no node answers in time.

    Raises, besides:
        NotFoundError: there is no such topic or partition.
        InvalidArgumentError: no state allows the change: a partition of one slot, not adjacent ones.
        AlreadyExistsError, ConflictError: the state does not allow it now: the partition is sealed or in
            another change, layout changes are closed, a limit is reached. The message names what it is.
        UnauthorizedError: the token does not allow it.
        RetriableError: fewer nodes take partitions now than the topic has replicas.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def split(
        self,
        topic: str,
        partition: int,
        *,
        at: Iterable[int] | None = None,
        into: int | None = None,
        preview: bool = False,
        wait_s: float = 30.0,
    ) -> LayoutChange:
        """Split a partition at slots, or into parts; in two without both, where half of its load is.

        Raises WaitTimeoutError if the change is not decided in `wait_s`; it goes on.
        """
        if at is not None and into is not None:
            raise InvalidArgumentError("`at` and `into` exclude each other: `at` has the slots of all parts")
        partition = whole("partition", partition, 0)
        into = None if into is None else whole("into", into, 0)
        slots = [] if at is None else [whole("at", slot, 0) for slot in at]
        if at is not None and not slots:
            raise InvalidArgumentError("`at` is empty: name the slots at which parts begin, or leave it out")
        return self._change(
            topic, "split", wait_s, partitions=[partition], at=slots, into=into or 0, preview=preview
        )

    def merge(
        self, topic: str, one: int, other: int, *, preview: bool = False, wait_s: float = 30.0
    ) -> LayoutChange:
        """Merge two adjacent partitions, in either order."""
        partitions = [whole("one", one, 0), whole("other", other, 0)]
        return self._change(topic, "merge", wait_s, partitions=partitions, preview=preview)

    def repartition(
        self, topic: str, partitions: int, *, preview: bool = False, wait_s: float = 30.0
    ) -> LayoutChange:
        """Give the topic this number of partitions in one step."""
        return self._change(
            topic, "repartition", wait_s, into=whole("partitions", partitions, 0), preview=preview
        )

    def abort_transition(self, topic: str, change: int) -> None:
        """End a change that is not committed; the layout stays as it was."""
        self._request(topic, "abort", change=change)

    def set_auto(
        self,
        topic: str,
        *,
        split: bool | None = None,
        merge: bool | None = None,
        partitions_max: int | None = None,
        partitions_min: int | None = None,
        reset: Iterable[str] = (),
    ) -> None:
        """Switch automatic splits and merges of a topic, and limit them. None leaves a setting as it is.

        `reset` are names of settings (split, merge, ..) for which the cluster's limits hold again.
        """
        given = {
            "split": split,
            "merge": merge,
            "partitions_max": partitions_max,
            "partitions_min": partitions_min,
        }
        values = {f"auto_{name}": int(value) for name, value in given.items() if value is not None}
        self._request(topic, "auto", auto=values | {f"auto_{name}": None for name in reset})

    def transitions(self, topic: str) -> tuple[layout_messages.OpenTransition, ...]:
        """Open layout changes of a topic, with what each waits for."""
        message = layout_messages.LayoutDescribe(topic=topic, after=(1 << 63) - 1)
        answer = self._admin.request(wire.Opcode.LAYOUT_DESCRIBE, message, topic=topic)[0]
        return tuple(answer.control(layout_messages.LayoutDescribed).transitions)

    def _change(self, topic: str, action: str, wait_s: float, **fields: Any) -> LayoutChange:
        end = time.monotonic() + wait_s
        # One key for all requests of this call: a repeat asks what became of the change of the first one.
        key = os.urandom(KEY_BYTES).hex()
        while True:
            left_s = max(0.0, end - time.monotonic())
            fields["wait_ms"] = round(min(left_s, REQUEST_WAIT_S) * 1_000)
            shown = self._request(topic, action, key=key, **fields)
            if not wait_s or not shown.change or shown.phase not in UNDECIDED:
                break
            if time.monotonic() >= end:
                raise WaitTimeoutError(
                    f"layout change {shown.change} is {shown.phase} after {wait_s:g} s and goes on; "
                    "`admin.transitions` shows what it waits for",
                    change=shown.change,
                )
            time.sleep(POLL_S)
        if shown.phase == "ABORTED":
            message = f"layout change {shown.change} was aborted, nothing has changed; ask again"
            raise ConflictError(message, change=shown.change)
        return shown

    def _request(self, topic: str, action: str, key: str = "", **fields: Any) -> LayoutChange:
        # The same key for all tries of this call: a try whose answer was lost has begun the change already.
        key = key or os.urandom(KEY_BYTES).hex()
        message = layout_messages.LayoutChange(topic=topic, action=action, key=key, **fields)
        answer = self._admin.request(wire.Opcode.LAYOUT_CHANGE, message, topic=topic)[0]
        shown = answer.control(layout_messages.LayoutChanged)
        would = () if isinstance(shown.would, msgspec.UnsetType) else tuple(shown.would)
        return LayoutChange(
            change=shown.change,
            kind=shown.kind,
            phase=shown.phase,
            version=shown.version,
            partitions=tuple(shown.partitions),
            gap_us=shown.gap_us,
            would=would,
        )
