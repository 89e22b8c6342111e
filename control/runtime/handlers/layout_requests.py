"""Serve LAYOUT_CHANGE and LAYOUT_DESCRIBE at a data address."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import msgspec

from ringfence.control.model.ids import Index, drawn_at
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.requests import RequestKey
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.data_plane import table_bodies
from ringfence.control.runtime.handlers.commands import Commands, Principal, RequestContext, at_data_address
from ringfence.control.runtime.handlers.layout_auto import LayoutAuto
from ringfence.control.runtime.handlers.layout_changes import (
    LayoutChanges,
    LayoutRequest,
    Merge,
    Progress,
    Repartition,
    Split,
    progress_of,
)
from ringfence.control.runtime.handlers.layout_views import LayoutViews
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S, CALLER_PREFIX, CALLER_TOKEN
from ringfence.native import layout_messages, messages
from ringfence.native.wire import CONTROL_BYTES_MAX, Code

# Characters of an idempotency key.
KEY_CHARACTERS_MAX: Final = 200
# Partitions of one LAYOUT_DESCRIBE answer: an entry with lineage takes about 250 bytes, and half of a body is
# for open layout changes.
DESCRIBED_MAX: Final = CONTROL_BYTES_MAX // 2 // 250


class LayoutRequests:
    """The handlers of one node; each returns the answer's body or raises RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        commands: Commands,
        changes: LayoutChanges,
        views: LayoutViews,
        auto: LayoutAuto,
    ) -> None:
        self._proposer, self._commands = proposer, commands
        self._changes, self._views, self._auto = changes, views, auto

    async def change(self, request: layout_messages.LayoutChange) -> layout_messages.LayoutChanged:
        """Split, merge, repartition, abort or set; the answer follows after `wait_ms` at the latest."""
        if request.action == "abort":
            return await self._abort(request)
        if request.action == "auto":
            return await self._set_auto(request)
        wanted = wanted_of(request)
        if request.preview:
            command = await self._changes.preview(request.topic, wanted)
            return _previewed(await topic_named(self._proposer, request.topic), command)
        wait = self._changes.until_decided(_wait_s(request.wait_ms))
        planned = self._changes.planned(request.topic, wanted)
        outcome = await self._commands.submit(planned, self._context(request), wait)
        change = ChangeId(outcome.index)
        changed = self._changed(await topic_named(self._proposer, request.topic), change)
        if not changed.partitions:
            return changed
        gap_us = (await self._views.times_of(change))["gap_us"]
        return msgspec.structs.replace(changed, gap_us=gap_us or 0)

    async def describe(self, request: layout_messages.LayoutDescribe) -> layout_messages.LayoutDescribed:
        """Partitions in the order of their ids, with lineage; all open changes of the topic."""
        topic = await topic_named(self._proposer, request.topic)
        entries = table_bodies.table(self._proposer.state, topic, 0).partitions
        later = sorted(
            (entry for entry in entries if entry.partition > request.after), key=lambda entry: entry.partition
        )
        shown = (await self._views.transitions())["transitions"]
        return layout_messages.LayoutDescribed(
            version=topic.layout.version,
            partitions=later[:DESCRIBED_MAX],
            transitions=[
                layout_messages.OpenTransition(
                    change=one["change"],
                    kind=one["kind"],
                    phase=one["phase"],
                    version=one["version"],
                    before=one["from"],
                    after=one["to"],
                    adoption_generation=one["adoption_generation"],
                    overdue=one["overdue"],
                    waits=one["waits"],
                )
                for one in shown
                if one["topic"] == topic.topic
            ],
            more=len(later) > DESCRIBED_MAX,
        )

    async def _abort(self, request: layout_messages.LayoutChange) -> layout_messages.LayoutChanged:
        topic = await topic_named(self._proposer, request.topic)
        transition = self._proposer.state.transitions.get(ChangeId(request.change))
        if transition is not None and transition.topic != topic.topic:
            message = f"layout change {request.change} is none of topic {topic.name!r}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        await self._commands.submit(self._changes.planned_abort(request.change, ""), self._context(request))
        return self._changed(topic, ChangeId(request.change))

    async def _set_auto(self, request: layout_messages.LayoutChange) -> layout_messages.LayoutChanged:
        values = {} if isinstance(request.auto, msgspec.UnsetType) else request.auto
        topic = await topic_named(self._proposer, request.topic)
        await self._commands.submit(self._auto.planned(request.topic, values), self._context(request))
        return self._changed(topic, ChangeId(0))

    def _context(self, request: layout_messages.LayoutChange) -> RequestContext:
        who = CALLER_TOKEN.get()
        token = self._proposer.state.tokens.get(who)
        caller = Principal(who, None if token is None else token.role, CALLER_PREFIX.get())
        context = at_data_address(caller, f"layout {request.action[:40]}", request.topic)
        if not request.key:
            return context
        if len(request.key) > KEY_CHARACTERS_MAX or not request.key.isprintable():
            message = f"key={request.key[:40]!r}: at most {KEY_CHARACTERS_MAX} printable characters"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        # The time that the caller waits is no part of what it asks for.
        content = messages.encode(msgspec.structs.replace(request, wait_ms=0, key=""))
        key = RequestKey(f"{who}\n{request.key}", blake2b(content, digest_size=16).digest())
        return replace(context, key=key)

    def _changed(self, topic: Topic, change: ChangeId) -> layout_messages.LayoutChanged:
        state = self._proposer.state
        version = topic.layout.version
        if not change:
            return layout_messages.LayoutChanged(change=0, kind="", phase="", version=version)
        transition, progress = state.transitions.get(change), progress_of(state, topic.topic, change)
        entries = (
            [
                entry
                for entry in table_bodies.table(state, topic, 0).partitions
                if drawn_at(entry.partition) == Index(change)
            ]
            if progress is Progress.COMMITTED
            else []
        )
        return layout_messages.LayoutChanged(
            change=change,
            kind="" if transition is None else str(transition.kind),
            phase=str(progress) if transition is None else str(transition.phase),
            version=entries[0].created_version if entries else version,
            partitions=entries,
        )


def _wait_s(wait_ms: int) -> float:
    """The wait of a request, within its deadline."""
    due_s, now_s = ANSWER_DUE_S.get(), asyncio.get_running_loop().time()
    left_s = wait_ms / 1_000 if due_s is None else min(wait_ms / 1_000, due_s - now_s)
    return max(0.0, left_s)


def wanted_of(request: layout_messages.LayoutChange) -> LayoutRequest:
    """The change of a request. RequestRefused if its fields do not fit its action."""
    numbers = [str(number) for number in request.partitions]
    match request.action, numbers:
        case "split", [partition]:
            if request.at and request.into:
                message = "`at` and `into` exclude each other: `at` has the slots of all parts"
                raise RequestRefused(Code.INVALID_ARGUMENT, message)
            return Split(partition, tuple(request.at), request.into or 2)
        case "merge", [one, other]:
            return Merge(one, other)
        case "repartition", []:
            return Repartition(request.into)
        case _:
            message = (
                f"action={request.action[:40]!r} with {len(numbers)} partitions: split names one, merge two, "
                "repartition none, abort has the number of the change, auto has settings"
            )
            raise RequestRefused(Code.INVALID_ARGUMENT, message)


def _previewed(topic: Topic, command: PrepareLayout | None) -> layout_messages.LayoutChanged:
    version = topic.layout.version
    if command is None:
        return layout_messages.LayoutChanged(change=0, kind="", phase="", version=version, would=[])
    would = [(child.lo, child.hi, [int(node) for node in child.nodes]) for child in command.children]
    return layout_messages.LayoutChanged(
        change=0, kind=str(command.kind), phase="", version=version, would=would
    )
