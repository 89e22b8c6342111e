"""Topics: create, list, describe, truncate, delete, add a schema; and what a node says of itself."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from ringfence.arrow import array_checks
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
)
from ringfence.network.request import Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.common.codec import Answer
    from ringfence.native.cluster_messages import ScopeCommit
    from ringfence.network.io_thread import Link

TIMEOUT_S = 30.0
TOPICS_A_PAGE = 1000
BEGIN_BACKOFF = Backoff(first_s=0.01, cap_s=1.0)  # a BEGIN takes milliseconds; a crowd of hundreds a second
INSTANCE_BYTES = 8  # tells one BEGIN from the others of its scope, at nodes that do not compare `after`


def _message(schema: Any) -> bytes:
    cut = array_checks.cut_name(schema) if isinstance(schema, pa.Schema) else None
    if cut is not None:
        raise array_checks.cut_error(cut)
    return bytes(schema_message(schema))


def _properties(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"properties={given!r}: a mapping of names to texts")
    return dict(given)


class Admin:
    """The control requests of a client; every call waits for its answer, `timeout_s` at most.

    All raise ConnectError when nobody answers in time, and RefusedError (its subclasses) when the node says
    no.
    """

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._link, self._timeout_s = link, timeout_s

    def ask(
        self, opcode: wire.Opcode, message: messages.Message | None, *, topic: str | None = None
    ) -> tuple[Answer, int]:
        """One request; the answer, and how many tries were never answered (they may have been served)."""
        ask = self._ask(opcode, message, topic)
        try:
            return self._link.ask(ask).result(), ask.tries_lost
        except (NotFoundError, AlreadyExistsError) as error:
            if ask.tries_lost:
                error.details["tries_lost"] = ask.tries_lost
            raise

    def _ask(
        self,
        opcode: wire.Opcode,
        message: messages.Message | None,
        topic: str | None = None,
        deadline: float | None = None,
    ) -> Ask:
        body = b"" if message is None else control_body(message)
        if len(body) > wire.CONTROL_BYTES_MAX:
            raise InvalidArgumentError(
                "a control request is above its limit", bytes=len(body), bytes_max=wire.CONTROL_BYTES_MAX
            )
        ask = Ask(opcode, body, deadline or time.monotonic() + self._timeout_s, topic=topic)
        ask.once = isinstance(message, messages.TopicTruncate) and message.before_offset is None
        if isinstance(message, messages.ProducerOpen):
            ask.harmless_late = message.name is None  # else a late one would fence the producer
        return ask

    def deadline(self) -> float:
        """Of something that begins now and takes several requests."""
        return time.monotonic() + self._timeout_s

    def begin(self, message: ScopeBegin, deadline: float) -> ScopeBegun:
        """A scope's next driver: it fences the one that a node has named, and no later one.

        A try that a silent node serves late is refused: another has begun since, or the answered one. Each
        refusal tells of one more driver, behind which the next try comes at once: after a pause it would be
        outdated. Who loses that race to a rival pauses, and asks anew who is the newest, until the deadline.

        Raises:
            DeadlineError: others begin the scope all the time; it is the last one's.
        """
        if not message.instance:
            # Of a node that does not compare: all tries of it are one driver.
            message = replace(message, instance=os.urandom(INSTANCE_BYTES), drawn=True)
        after = 0
        for refusals in itertools.count(1):
            ask = self._ask(wire.Opcode.BEGIN, replace(message, after=after), deadline=deadline)
            try:
                return self._link.ask(ask).result().control(ScopeBegun)
            except ConflictError as error:
                driver = error.details.get("driver")
                if not isinstance(driver, int) or driver == after:
                    raise
                after = driver
            is_race_lost = refusals % 2 == 0
            pause_s = BEGIN_BACKOFF.delay_s(refusals // 2, self._link.jitter()) if is_race_lost else 0.0
            if time.monotonic() + pause_s >= deadline:
                break
            time.sleep(pause_s)
        raise DeadlineError(
            "other drivers began this scope each time before this one could; end them, or give each a scope "
            "of its own",
            scope=message.scope,
            driver=after,
            tries=refusals,
        )

    def commit(self, message: ScopeCommit) -> Answer:
        """As `ask`.

        Raises:
            UnknownOutcomeError: a try of it may have been served, and no answer says so.
            DeadlineError: every try was refused before it was decided; nothing is committed.
        """
        ask = self._ask(wire.Opcode.COMMIT, message)
        try:
            return self._link.ask(ask).result()
        except (FencedError, UnknownOutcomeError):
            raise  # what is committed is told to anybody, before it is asked who wants to know
        except RingfenceError as error:
            # A refusal that may be tried again came in time or too late: the entry may stand in the log. But
            # DEADLINE is said before an entry is proposed, of a try that ends with it.
            is_final = isinstance(error, (RefusedError, DeadlineError)) and not isinstance(
                error, ProtocolError
            )
            if not ask.sent or (is_final and not ask.may_be_served):
                raise
            raise UnknownOutcomeError(
                f"whether the commit was served is not known ({error.message}): all of its rows are in the "
                "log, or none; the same commit, asked for again, tells",
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
    ) -> messages.TopicInfo:
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
            return self.ask(wire.Opcode.TOPIC_CREATE, message, topic=name)[0].control(messages.TopicInfo)
        except AlreadyExistsError as error:
            if not error.details.get("tries_lost"):
                raise
            # An answer was lost, so the topic may be there by this very call: an equal one is what was asked
            # for.
            found = self.topic(name)
            if (
                found.schemas[0] == message.schema
                and found.key == message.key
                and len(found.partitions) == partitions
            ):
                return found
            raise

    def topics(self, prefix: str = "") -> list[messages.TopicInfo]:
        """See `Client.topics`."""
        found: list[messages.TopicInfo] = []
        while True:
            after = found[-1].name if found else ""
            message = messages.TopicList(prefix=prefix, after=after, limit=TOPICS_A_PAGE)
            page = self.ask(wire.Opcode.TOPIC_LIST, message)[0].control(messages.Topics)
            found += page.topics
            if not page.more or not page.topics:
                return found

    def topic(self, name: str) -> messages.TopicInfo:
        """See `Client.topic`."""
        message = messages.TopicName(name=name)
        return self.ask(wire.Opcode.TOPIC_DESCRIBE, message, topic=name)[0].control(messages.TopicInfo)

    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None:
        """See `Client.truncate`."""
        message = messages.TopicTruncate(name=name, partition=partition, before_offset=before_offset)
        self.ask(wire.Opcode.TOPIC_TRUNCATE, message, topic=name)

    def delete(self, name: str, *, missing_ok: bool) -> None:
        """See `Client.delete`."""
        try:
            self.ask(wire.Opcode.TOPIC_DELETE, messages.TopicName(name=name), topic=name)
        except NotFoundError as error:
            if not missing_ok and not error.details.get("tries_lost"):
                raise

    def add_schema(self, name: str, schema: Any) -> int:
        """See `Client.add_schema`."""
        message = messages.SchemaAdd(name=name, schema=_message(schema))
        return (
            self.ask(wire.Opcode.SCHEMA_ADD, message, topic=name)[0].control(messages.SchemaAdded).schema_id
        )

    def status(self) -> messages.Status:
        """See `Client.status`."""
        return self.ask(wire.Opcode.STATUS, None)[0].control(messages.Status)

    def open_producer(
        self, topic: str, name: str | None, *, accept_fresh_start: bool = False
    ) -> messages.ProducerOpened:
        """A producer id and epoch; of a named one also its resume point. See `Client.producer`."""
        message = messages.ProducerOpen(topic=topic, name=name, accept_fresh_start=accept_fresh_start)
        return self.ask(wire.Opcode.PRODUCER_OPEN, message, topic=topic)[0].control(messages.ProducerOpened)
