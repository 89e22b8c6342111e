"""`ringfence publish`: a file into a topic."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click

from ringfence.common.arguments import scope_name
from ringfence.control.cli.connection import TIMEOUT_DEFAULT_S, address_option, connected, token_option
from ringfence.control.cli.exit_codes import Exit, PartlyStoredError
from ringfence.control.cli.output import Progress, emit, json_option, progress, shown_bytes
from ringfence.control.cli.tables import BATCH_ROWS, Source, readable
from ringfence.control.model.text import counted
from ringfence.native.errors import InvalidArgumentError, NotFoundError, RingfenceError, UnknownOutcomeError
from ringfence.scopes import SCOPE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ringfence import Appended, Client, Producer
    from ringfence.send.send_future import SendFuture
    from ringfence.transaction import Transaction

# Sends whose outcome is still open; the producer bounds their bytes, this bounds our list.
WAITING_MAX = 256
# How long an interrupt waits for the answers that are under way: as long as Python's end does.
INTERRUPTED_S = 10.0


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--create", is_flag=True, help="Create the topic with the first file's columns if it does not exist."
)
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="With --create: key columns.")
@click.option("--partitions", type=int, default=1, show_default=True, help="With --create: partitions.")
@click.option(
    "--producer", "name", metavar="NAME", help="Publish as this named producer; fences its predecessor."
)
@click.option("--scope", metavar="NAME", help="All rows of all FILEs or none: a transaction of this scope.")
@click.option(
    "--epoch",
    type=click.IntRange(1, (1 << 63) - 1),
    metavar="NUMBER",
    help="With --scope: this run's number, above earlier ones; repeated, it stores nothing twice.",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(1, 1 << 24),
    default=BATCH_ROWS,
    show_default=True,
    help="Rows of one send.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    help="Seconds within which each send must get its outcome, retries included.",
)
@address_option
@token_option
@json_option
def command(topic: str, files: tuple[str, ...], *, address: str, as_json: bool, **options: Any) -> int:
    """Send the rows of Parquet or Arrow FILEs to TOPIC; `-` is an Arrow stream on stdin.

    Returns when every row is on the node's disk. With --json each acknowledged send is a line, and the last
    line is the sum. Ctrl-C and SIGTERM wait up to 10 s for the answers that are under way; with rows on disk
    the exit code is then 11, for the same command would store those twice, unless it has a --scope.

    \b
    Example:
      ringfence publish lineitem lineitem.parquet --create --key l_orderkey --partitions 8
      ringfence publish sales monday.parquet --scope nightly --epoch 20261123
    """  # noqa: D301
    _check(options)
    began = time.monotonic()
    sent = _Sent(as_json=as_json)
    try:
        wait_s = min(options["timeout_s"], TIMEOUT_DEFAULT_S)
        with connected(address, wait_s, options["token_file"]) as client:
            if options["scope"] is not None:
                return _publish_whole(client, topic, files, sent, options, began)
            for place, file in enumerate(files):
                _publish(client, topic, file, sent, options, first=place == 0)
    except (RingfenceError, click.UsageError) as error:
        sent.tell_early(topic)
        if sent.rows and options["scope"] is None and not isinstance(error, UnknownOutcomeError):
            raise sent.partly(error) from error
        if isinstance(error, NotFoundError) and not (options["create"] or sent.rows):
            source = "what comes" if files[0] == "-" else files[0]
            way_out = f"or publish with --create, which takes the columns of {source}"
            message = f"{error.message}; {way_out}"
            raise NotFoundError(message, topic=error.topic, code=error.code, **error.details) from error
        raise
    except KeyboardInterrupt as interrupt:
        if options["scope"] is None and (stored := sent.interrupted()) is not None:
            raise stored from interrupt
        raise
    sent.tell(topic, time.monotonic() - began)
    return Exit.OK


def _check(options: dict[str, Any]) -> None:
    if options["scope"] is None and options["epoch"] is not None:
        raise click.UsageError("--epoch numbers the runs of a --scope: give that, too")
    if options["scope"] is not None and options["name"] is not None:
        raise click.UsageError("--scope and --producer exclude each other: a scope has producers of its own")
    if options["scope"] is not None:
        if not 0 < len(os.fsencode(options["scope"])) <= SCOPE_BYTES_MAX:
            raise click.UsageError(f"--scope: a name of 1 to {SCOPE_BYTES_MAX} bytes")
        scope_name(options["scope"], SCOPE_BYTES_MAX)  # before a topic is made


def _publish_whole(
    client: Client, topic: str, files: tuple[str, ...], sent: _Sent, options: dict[str, Any], began: float
) -> int:
    """All files as one transaction.

    RingfenceError, UsageError: no row is in the log or ever will be; UnknownOutcomeError: all are, or none.
    """
    scope, epoch, timeout_s = options["scope"], options["epoch"], options["timeout_s"]
    with ExitStack() as opened:
        # A topic that is to be made is made first: the scope is one of the topic.
        begun = []
        if options["create"] and not _is_there(client, topic):
            first = opened.enter_context(Source(files[0], batch_rows=options["batch_rows"]))
            begun.append((first, _begun(client, topic, first, options, first=True)))
        with client.transaction(topic, scope=scope, epoch=epoch, timeout_s=timeout_s) as transaction:
            _check_epoch(transaction, scope)
            for source, batches in begun:
                _stage(transaction, source, batches, sent)
            for file in () if transaction.already else files[len(begun) :]:
                with Source(file, batch_rows=options["batch_rows"]) as source:
                    _stage(transaction, source, readable(source), sent)
    sent.tell_whole(topic, transaction, time.monotonic() - began)
    return Exit.OK


def _is_there(client: Client, topic: str) -> bool:
    try:
        client.topic(topic)
    except NotFoundError:
        return False
    return True


def _stage(transaction: Transaction, source: Source, batches: Iterable[pa.RecordBatch], sent: _Sent) -> None:
    with progress(source.path, source.rows, quiet=sent.as_json) as bar:
        for batch in batches:
            transaction.send(batch)
            sent.stage(batch)
            bar.advance(rows=batch.num_rows, size=batch.nbytes)


def _check_epoch(transaction: Transaction, scope: str) -> None:
    """InvalidArgumentError: one that was passed over would be taken for one that is stored."""
    if transaction.epoch < transaction.committed:
        raise InvalidArgumentError(
            f"scope {scope!r} has committed epoch {transaction.committed} since: whether epoch "
            f"{transaction.epoch} was stored is not known any more, and nothing is stored now; rows that are "
            f"not there yet take a number above {transaction.committed}"
        )


def _begun(
    client: Client, topic: str, source: Source, options: dict[str, Any], *, first: bool
) -> Iterable[pa.RecordBatch]:
    """Its batches, once the first can be read; the topic, if it shall be made, is there."""
    batches = readable(source)
    if options["create"] and first:
        keys = [key.strip() for text in options["keys"] for key in text.split(",") if key.strip()]
        client.create_topic(
            topic, schema=source.schema, key=keys, partitions=options["partitions"], exist_ok=True
        )
    return batches


def _publish(
    client: Client, topic: str, file: str, sent: _Sent, options: dict[str, Any], *, first: bool
) -> None:
    """One file. RingfenceError; UsageError where it cannot be read, or not to its end."""
    with Source(file, batch_rows=options["batch_rows"]) as source:
        batches = _begun(client, topic, source, options, first=first)
        # All rows of the files are sent, whatever an earlier run stored: no resume point is looked at.
        producer = client.producer(
            topic,
            name=options["name"],
            timeout_s=options["timeout_s"],
            accept_fresh_start=options["name"] is not None,
        )
        with producer, progress(file, source.rows, quiet=sent.as_json) as bar:
            try:
                _send(producer, batches, sent, bar)
            except KeyboardInterrupt:
                _end_early(producer)
                raise


def _end_early(producer: Producer) -> None:
    """Take the answers that are under way; at a second interrupt those that are there."""
    with suppress(RingfenceError):  # each send has its own
        try:
            producer.close(INTERRUPTED_S)
        except KeyboardInterrupt:
            producer.close(0)


def _send(producer: Producer, batches: Iterable[pa.RecordBatch], sent: _Sent, bar: Progress) -> None:
    """Send all of them; outcomes are taken as they come, so that a failure ends the work early."""
    waiting = sent.waiting
    for batch in batches:
        sent.rows_at_send = batch.num_rows  # an interrupt may come when they are on their way
        waiting.append((producer.send(batch), batch.num_rows, batch.nbytes))
        sent.rows_at_send = 0
        while waiting and (waiting[0][0].done() or len(waiting) > WAITING_MAX):
            sent.take(bar)
    while waiting:
        sent.take(bar)


_AGAIN = (
    "the same command would store these twice: read which are there and send the others, or send all into a "
    "new topic; with --scope nothing is stored in part"
)


class _Sent:
    """What was acknowledged so far."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.rows = self.size = self.sends = self.rows_at_send = 0
        self.waiting: deque[tuple[SendFuture, int, int]] = deque()
        self._partitions: Counter[int] = Counter()

    def take(self, bar: Progress) -> None:
        """The oldest send's outcome; while it is not there, an interrupt leaves the send in the list."""
        self.waiting[0][0].exception()
        future, rows, size = self.waiting.popleft()
        try:
            appended = future.result()
        except RingfenceError:
            self._count_part(future, rows, size)
            raise
        self._count(appended, rows, size)
        bar.advance(rows=rows, size=size)

    def _count(self, appended: Iterable[Appended], rows: int, size: int) -> None:
        self.rows += rows
        self.size += size
        self.sends += 1
        for part in appended:
            self._partitions[part.partition] += part.rows
        if self.as_json:
            places = [
                {"partition": part.partition, "first_offset": part.first_offset, "rows": part.rows}
                for part in appended
            ]
            emit({"rows": rows, "bytes": size, "appended": places})

    def tell_early(self, topic: str) -> None:
        """What a failure leaves behind. The producer is closed: what waited has its outcome."""
        self._count_waiting()
        if self.rows and not self.as_json:
            click.echo(f"{topic}: at least {self.rows:,} rows are on disk", err=True)

    def _count_waiting(self) -> int:
        """Count what waited; how many rows nobody knows of."""
        unknown = 0
        while self.waiting:
            future, rows, size = self.waiting.popleft()
            error = future.exception() if future.done() else None
            if future.done() and error is None:
                self._count(future.result(), rows, size)
                continue
            self._count_part(future, rows, size)
            if not future.done() or isinstance(error, UnknownOutcomeError):
                unknown += rows - sum(part.rows for part in future.appended)
        return unknown

    def interrupted(self) -> UnknownOutcomeError | None:
        """What Ctrl-C leaves behind; None: not a row of this run is on disk."""
        unknown = self._count_waiting() + self.rows_at_send
        values: dict[str, Any] = {
            "rows": self.rows,
            "rows_unknown": unknown,
            "partitions": sorted(self._partitions),
        }
        may_be = f"{unknown:,} without an answer may be"
        if self.rows:
            others = may_be if unknown else "the others are not"
            return PartlyStoredError(f"interrupted: {self._stored()}, {others}; {_AGAIN}", **values)
        if unknown:
            return UnknownOutcomeError(
                f"interrupted: no row was acknowledged, {may_be} on disk; {_AGAIN}", **values
            )
        return None

    def stage(self, batch: pa.RecordBatch) -> None:
        """Of a transaction: nothing counts before its commit."""
        self.size += batch.nbytes
        self.sends += 1

    def _count_part(self, future: SendFuture, rows: int, size: int) -> None:
        """Of a send that failed: what other partitions have of it."""
        appended = future.appended
        stored = sum(part.rows for part in appended)
        if stored:
            self._count(appended, stored, size * stored // rows)

    def partly(self, error: RingfenceError | click.UsageError) -> PartlyStoredError:
        """Neither "try again" nor a refusal alone: the same command would store these rows twice."""
        why = error.format_message().rstrip(".") if isinstance(error, click.UsageError) else error.message
        return PartlyStoredError(
            f"{self._stored()}, the others are not ({why}); {_AGAIN}",
            rows=self.rows,
            partitions=sorted(self._partitions),
        )

    def _stored(self) -> str:
        return f"{self.rows:,} rows in {counted(len(self._partitions), 'partition')} are on disk"

    def tell_whole(self, topic: str, transaction: Transaction, seconds: float) -> None:
        if self.as_json:
            emit(
                {
                    "done": True,
                    "topic": topic,
                    "rows": transaction.rows,
                    "bytes": self.size,
                    "sends": self.sends,
                    "seconds": round(seconds, 3),
                    "epoch": transaction.epoch,
                    "already": transaction.already,
                }
            )
        elif transaction.already:
            click.echo(f"{topic}: epoch {transaction.epoch} was committed before, nothing is stored again")
        else:
            click.echo(
                f"{topic}: {transaction.rows:,} rows ({shown_bytes(self.size)}) are on disk, all at once as "
                f"epoch {transaction.epoch}, {seconds:.2f} s"
            )

    def tell(self, topic: str, seconds: float) -> None:
        values = {
            "topic": topic,
            "rows": self.rows,
            "bytes": self.size,
            "sends": self.sends,
            "seconds": round(seconds, 3),
            "partitions": {str(key): self._partitions[key] for key in sorted(self._partitions)},
        }
        if self.as_json:
            emit({"done": True, **values})
            return
        rate = f"{shown_bytes(self.size / seconds)}/s" if seconds > 0 else "-"
        click.echo(
            f"{topic}: {self.rows:,} rows ({shown_bytes(self.size)}) in "
            f"{counted(len(self._partitions), 'partition')} are on disk, {seconds:.2f} s, {rate}"
        )
