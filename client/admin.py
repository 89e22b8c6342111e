"""Control requests: create, list, describe, truncate and delete topics; scopes; status of a node."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.arrow import array_checks
from ringfence.common.cluster_info import ClusterInfo
from ringfence.common.codec import column_names, control_body
from ringfence.common.retry import Backoff
from ringfence.native import messages, wire
from ringfence.native._node import schema_message
from ringfence.native.cluster_messages import ScopeBegin, ScopeBegun
from ringfence.native.errors import (
    AlreadyExistsError,
    ConflictError,
    DeadlineError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    RingfenceError,
    UnknownOutcomeError,
    refusal,
)
from ringfence.network.request import Request
from ringfence.send.restage import is_definite
from ringfence.send.resume import Rule
from ringfence.topic_info import TopicInfo, Topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.common.codec import Answer
    from ringfence.native.cluster_messages import ScopeCommit
    from ringfence.network.io_thread import IoThread

TIMEOUT_S = 30.0
TOPICS_A_PAGE = 1000
BEGIN_BACKOFF = Backoff(first_s=0.01, cap_s=1.0)  # one BEGIN takes milliseconds, hundreds of them a second
INSTANCE_BYTES = 8  # identifies one BEGIN at nodes that do not compare `after`


def _message(schema: Any) -> bytes:
    cut = array_checks.cut_name(schema) if isinstance(schema, pa.Schema) else None
    if cut is not None:
        raise array_checks.cut_error(cut)
    return bytes(schema_message(schema))


def _properties(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"properties={given!r}: must be a mapping of str to str")
    return dict(given)


class Admin:
    """The control requests of a client; every call waits for its answer, at most `timeout_s`.

    All raise ConnectError if no node answers in time, and a subclass of RefusedError if the node refuses.
    """

    def __init__(self, io_thread: IoThread, timeout_s: float) -> None:
        self._io_thread, self._timeout_s = io_thread, timeout_s

    def request(
        self,
        opcode: wire.Opcode,
        message: messages.Message | None,
        *,
        topic: str | None = None,
        deadline: float | None = None,
    ) -> tuple[Answer, int]:
        """Send one request. Returns the answer and the number of lost tries, which may have been executed.

        `deadline`: of the monotonic clock, in seconds; None: `timeout_s` from now on.
        """
        request = self._new_request(opcode, message, topic, deadline)
        try:
            return self._io_thread.request(request).result(), request.tries_lost
        except (NotFoundError, AlreadyExistsError) as error:
            if request.tries_lost:
                error.details["tries_lost"] = request.tries_lost
            raise

    def _new_request(
        self,
        opcode: wire.Opcode,
        message: messages.Message | None,
        topic: str | None = None,
        deadline: float | None = None,
    ) -> Request:
        body = b"" if message is None else control_body(message)
        if len(body) > wire.CONTROL_BYTES_MAX:
            raise InvalidArgumentError(
                "the control request is too large; shorten its names and properties",
                bytes=len(body),
                bytes_max=wire.CONTROL_BYTES_MAX,
            )
        request = Request(opcode, body, deadline or time.monotonic() + self._timeout_s, topic=topic)
        request.once = isinstance(message, messages.TopicTruncate) and message.before_offset is None
        if isinstance(message, messages.ProducerOpen):
            request.harmless_late = message.name is None  # a late one with a name would fence the producer
        return request

    def deadline(self) -> float:
        """The deadline of a call that begins now and needs several requests."""
        return time.monotonic() + self._timeout_s

    def begin(self, message: ScopeBegin, deadline: float) -> ScopeBegun:
        """Begin a scope: the new driver fences the driver that a node has named, and no later one.

        A node that executes a try late refuses it, because another driver, or another try, has begun since.
        A refusal names the newest driver, and the next try follows immediately: after a pause it could be
        outdated. A driver that loses this race pauses and requests the newest driver again, until the
        deadline.

        Raises:
            DeadlineError: other drivers began the scope before every try; it names the last one.
        """
        if not message.instance:
            # For nodes that do not compare `after`: all tries are one driver.
            message = replace(message, instance=os.urandom(INSTANCE_BYTES), drawn=True)
        after = 0
        for refusals in itertools.count(1):
            request = self._new_request(wire.Opcode.BEGIN, replace(message, after=after), deadline=deadline)
            try:
                return self._io_thread.request(request).result().control(ScopeBegun)
            except ConflictError as error:
                driver = error.details.get("driver")
                if not isinstance(driver, int) or driver == after:
                    raise
                after = driver
            is_race_lost = refusals % 2 == 0
            pause_s = BEGIN_BACKOFF.delay_s(refusals // 2, self._io_thread.jitter()) if is_race_lost else 0.0
            if time.monotonic() + pause_s >= deadline:
                break
            time.sleep(pause_s)
        raise DeadlineError(
            "other drivers began this scope before every try of this one; stop them, or give each driver "
            "its own scope",
            scope=message.scope,
            driver=after,
            tries=refusals,
        )

    def commit(self, message: ScopeCommit) -> Answer:
        """Like `request`, for a commit.

        Raises:
            UnknownOutcomeError: a try may have been executed, and no answer confirms it.
            DeadlineError: every try was refused before the commit was proposed; nothing is committed.
        """
        request = self._new_request(wire.Opcode.COMMIT, message)
        try:
            return self._io_thread.request(request).result()
        except (FencedError, UnknownOutcomeError):
            raise  # a node reports a committed epoch before it checks the driver
        except RingfenceError as error:
            # Gates that are to be claimed again: the same COMMIT is repeated with the new claims, and a node
            # answers it if an earlier try of it was decided.
            if is_definite(error) or error.code is wire.Code.STALE_CLAIM:
                raise
            # After a retriable refusal the entry may be in the metadata log. DEADLINE, however, is answered
            # before an entry is proposed.
            is_final = isinstance(error, (RefusedError, DeadlineError)) and not isinstance(
                error, ProtocolError
            )
            if not request.sent or (is_final and not request.may_be_served):
                raise
            raise UnknownOutcomeError(
                f"the outcome of the commit is unknown ({error.message}): either all of its rows are in the "
                "log or none; repeat the same commit to find out",
                scope=message.scope_id,
                epoch=message.epoch,
            ) from error

    def create_topic(
        self,
        name: str,
        *,
        schema: Any,
        key: str | Sequence[str] = (),
        partitions: int = 1,
        replication: int = 1,
        retention_bytes: int | None = None,
        retention_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """See `Client.create_topic`."""
        message = messages.TopicCreate(
            name=name,
            schema=_message(schema),
            key=column_names("key", key),
            partitions=partitions,
            replication=replication,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
            properties=_properties(properties),
            exist_ok=exist_ok,
        )
        try:
            return self.request(wire.Opcode.TOPIC_CREATE, message, topic=name)[0].control(TopicInfo)
        except AlreadyExistsError as error:
            if not error.details.get("tries_lost"):
                raise
            # An answer was lost, so an earlier try of this call may have created the topic.
            info = self.topic(name)
            if (
                info.schema_messages[0] == message.schema
                and info.key == message.key
                and len(info.partitions) == partitions
            ):
                return info
            raise

    def topics(self, prefix: str = "") -> list[TopicInfo]:
        """See `Client.topics`."""
        infos: list[TopicInfo] = []
        while True:
            after = infos[-1].name if infos else ""
            message = messages.TopicList(prefix=prefix, after=after, limit=TOPICS_A_PAGE)
            page = self.request(wire.Opcode.TOPIC_LIST, message)[0].control(Topics)
            infos += page.topics
            if not page.more or not page.topics:
                return infos

    def cluster(self) -> ClusterInfo:
        """See `Client.cluster`."""
        pages: list[messages.Topics] = []
        topics: dict[str, int] = {}
        while not pages or pages[-1].more:
            message = messages.TopicList(after=max(topics, default=""), cluster=True)
            page = self.request(wire.Opcode.TOPIC_LIST, message)[0].control(messages.Topics)
            if not (isinstance(page.names, list) and isinstance(page.nodes, list)):
                raise refusal(wire.Code.NOT_SUPPORTED, "the node does not list its cluster yet: upgrade it")
            topics |= {name: topic for topic, name in page.names}
            pages.append(page)
            if not page.names:
                break
        first = pages[0]
        assert isinstance(first.nodes, list)
        nodes = {node.node: tuple(node.addresses) for node in first.nodes}
        return ClusterInfo(first.generation if isinstance(first.generation, int) else 0, nodes, topics)

    def topic(self, name: str) -> TopicInfo:
        """See `Client.topic`."""
        message = messages.TopicName(name=name)
        return self.request(wire.Opcode.TOPIC_DESCRIBE, message, topic=name)[0].control(TopicInfo)

    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None:
        """See `Client.truncate`."""
        message = messages.TopicTruncate(name=name, partition=partition, before_offset=before_offset)
        self.request(wire.Opcode.TOPIC_TRUNCATE, message, topic=name)

    def delete(self, name: str, *, missing_ok: bool, force: bool = False) -> None:
        """See `Client.delete_topic`."""
        message = messages.TopicDelete(name=name, force=True if force else UNSET)
        try:
            self.request(wire.Opcode.TOPIC_DELETE, message, topic=name)
        except NotFoundError as error:
            if not missing_ok and not error.details.get("tries_lost"):
                raise

    def add_schema(self, name: str, schema: Any) -> int:
        """See `Client.add_schema`."""
        message = messages.SchemaAdd(name=name, schema=_message(schema))
        return (
            self.request(wire.Opcode.SCHEMA_ADD, message, topic=name)[0]
            .control(messages.SchemaAdded)
            .schema_id
        )

    def status(self) -> messages.Status:
        """See `Client.status`."""
        return self.request(wire.Opcode.STATUS, None)[0].control(messages.Status)

    def open_producer(
        self, topic: str, name: str | None, *, accept_fresh_start: bool = False, spread: bool = False
    ) -> messages.ProducerOpened:
        """Open a producer: id and epoch, and the resume points of a named producer. See `Client.producer`."""
        message = messages.ProducerOpen(
            topic=topic, name=name, accept_fresh_start=accept_fresh_start, spread=True if spread else UNSET
        )
        answer = self.request(wire.Opcode.PRODUCER_OPEN, message, topic=topic)[0]
        opened = answer.control(messages.ProducerOpened)
        if spread and opened.rule != Rule.SPREAD:
            raise refusal(
                wire.Code.NOT_SUPPORTED,
                "the node does not know spread=True: upgrade all nodes, and run `ringfence cluster finalize`",
                topic=topic,
            )
        return opened
