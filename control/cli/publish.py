"""`ringfence publish`: send files to a topic."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click

from ringfence.common.arguments import scope_name
from ringfence.control.cli.connection import TIMEOUT_DEFAULT_S, address_option, open_client, token_option
from ringfence.control.cli.exit_codes import Exit, PartlyStoredError
from ringfence.control.cli.output import Progress, emit, format_bytes, json_option, progress
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

# Pending sends. The producer bounds their bytes; this bounds the length of the list.
PENDING_MAX = 256
# Seconds that an interrupted command waits for pending answers, as the client does at interpreter exit.
INTERRUPTED_S = 10.0


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--create", is_flag=True, help="Create the topic with the columns of the first file if it does not exist."
)
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="With --create: key columns.")
@click.option(
    "--partitions", type=int, default=1, show_default=True, help="With --create: number of partitions."
)
@click.option(
    "--producer",
    "name",
    metavar="NAME",
    help="Publish as this named producer; fences the previous process of that name.",
)
@click.option(
    "--scope", metavar="NAME", help="Publish all rows of all FILEs or none, as a transaction of this scope."
)
@click.option(
    "--epoch",
    type=click.IntRange(1, (1 << 63) - 1),
    metavar="NUMBER",
    help="With --scope: number of this run, above all earlier ones. A repeated number stores nothing twice.",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(1, 1 << 24),
    default=BATCH_ROWS,
    show_default=True,
    help="Rows per send.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    help="Seconds to wait for the outcome of each send, including retries.",
)
@address_option
@token_option
@json_option
def command(topic: str, files: tuple[str, ...], *, address: str, as_json: bool, **options: Any) -> int:
    """Send the rows of Parquet or Arrow FILEs to TOPIC; `-` is an Arrow stream on stdin.

    Returns when every row is on the node's disk. With --json, print a line for each acknowledged send and a
    last line with the totals. After Ctrl-C, SIGTERM or SIGHUP, wait up to 10 s for pending answers. If rows
    are then on disk, the exit code is 11: without --scope, the same command would store them twice.

    \b
    Example:
      ringfence publish lineitem lineitem.parquet --create --key l_orderkey --partitions 8
      ringfence publish sales monday.parquet --scope nightly --epoch 20261123
    """  # noqa: D301
    _check(options)
    began = time.monotonic()
    tally = _Tally(as_json=as_json)
    try:
        wait_s = min(options["timeout_s"], TIMEOUT_DEFAULT_S)
        with open_client(address, wait_s, options["token_file"]) as client:
            if options["scope"] is not None:
                return _publish_whole(client, topic, files, tally, options, began)
            for place, file in enumerate(files):
                _publish(client, topic, file, tally, options, first=place == 0)
    except (RingfenceError, click.UsageError) as error:
        tally.report_early(topic)
        if tally.rows and options["scope"] is None and not isinstance(error, UnknownOutcomeError):
            raise tally.partly_stored_error(error) from error
        if isinstance(error, NotFoundError) and not (options["create"] or tally.rows):
            source = "the stream" if files[0] == "-" else files[0]
            way_out = f"or publish with --create, which uses the columns of {source}"
            message = f"{error.message}; {way_out}"
            raise NotFoundError(message, topic=error.topic, code=error.code, **error.details) from error
        raise
    except KeyboardInterrupt as interrupt:
        if options["scope"] is None and (failure := tally.interrupted_error()) is not None:
            raise failure from interrupt
        raise
    tally.report(topic, time.monotonic() - began)
    return Exit.OK


def _check(options: dict[str, Any]) -> None:
    if options["scope"] is None and options["epoch"] is not None:
        raise click.UsageError("--epoch needs --scope: pass both")
    if options["scope"] is not None and options["name"] is not None:
        raise click.UsageError(
            "--scope and --producer exclude each other: a scope has its own producers; pass one of them"
        )
    if options["scope"] is not None:
        if not 0 < len(os.fsencode(options["scope"])) <= SCOPE_BYTES_MAX:
            raise click.UsageError(f"--scope: expected a name of 1 to {SCOPE_BYTES_MAX} bytes")
        scope_name(options["scope"], SCOPE_BYTES_MAX)  # before a topic is created


def _publish_whole(
    client: Client, topic: str, files: tuple[str, ...], tally: _Tally, options: dict[str, Any], began: float
) -> int:
    """Publish all files as one transaction.

    Raises:
        RingfenceError, UsageError: no row is stored.
        UnknownOutcomeError: either all rows are stored or none.
    """
    scope, epoch, timeout_s = options["scope"], options["epoch"], options["timeout_s"]
    with ExitStack() as sources:
        # Create the topic first: the scope belongs to the topic.
        first_source = []
        if options["create"] and not _topic_exists(client, topic):
            first = sources.enter_context(Source(files[0], batch_rows=options["batch_rows"]))
            first_source.append((first, _batches(client, topic, first, options, first=True)))
        with client.transaction(topic, scope=scope, epoch=epoch, timeout_s=timeout_s) as transaction:
            _check_epoch(transaction, scope)
            for source, batches in first_source:
                _stage(transaction, source, batches, tally)
            for file in () if transaction.already else files[len(first_source) :]:
                with Source(file, batch_rows=options["batch_rows"]) as source:
                    _stage(transaction, source, readable(source), tally)
    tally.report_transaction(topic, transaction, time.monotonic() - began)
    return Exit.OK


def _topic_exists(client: Client, topic: str) -> bool:
    try:
        client.topic(topic)
    except NotFoundError:
        return False
    return True


def _stage(
    transaction: Transaction, source: Source, batches: Iterable[pa.RecordBatch], tally: _Tally
) -> None:
    with progress(source.path, source.rows, quiet=tally.as_json) as bar:
        for batch in batches:
            transaction.send(batch)
            tally.stage(batch)
            bar.advance(rows=batch.num_rows, size=batch.nbytes)


def _check_epoch(transaction: Transaction, scope: str) -> None:
    """InvalidArgumentError if the epoch is below the committed one: its rows may or may not be stored."""
    if transaction.epoch < transaction.committed:
        raise InvalidArgumentError(
            f"scope {scope!r} has committed epoch {transaction.committed}: it is unknown whether epoch "
            f"{transaction.epoch} was stored, and nothing is stored now; to store missing rows, pass an "
            f"epoch above {transaction.committed}"
        )


def _batches(
    client: Client, topic: str, source: Source, options: dict[str, Any], *, first: bool
) -> Iterable[pa.RecordBatch]:
    """Return the batches after a successful read of the first one; with --create, create the topic."""
    batches = readable(source)
    if options["create"] and first:
        keys = [key.strip() for text in options["keys"] for key in text.split(",") if key.strip()]
        client.create_topic(
            topic, schema=source.schema, key=keys, partitions=options["partitions"], exist_ok=True
        )
    return batches


def _publish(
    client: Client, topic: str, file: str, tally: _Tally, options: dict[str, Any], *, first: bool
) -> None:
    """Publish one file. Raises RingfenceError; UsageError if the file cannot be read completely."""
    with Source(file, batch_rows=options["batch_rows"]) as source:
        batches = _batches(client, topic, source, options, first=first)
        # Send all rows of the files, also if an earlier run stored some: the resume point is not used.
        producer = client.producer(
            topic,
            name=options["name"],
            timeout_s=options["timeout_s"],
            accept_fresh_start=options["name"] is not None,
        )
        with producer, progress(file, source.rows, quiet=tally.as_json) as bar:
            try:
                _send(producer, batches, tally, bar)
            except KeyboardInterrupt:
                _end_early(producer)
                raise


def _end_early(producer: Producer) -> None:
    """Wait for pending answers; a second interrupt ends the wait."""
    with suppress(RingfenceError):  # each send has its own error
        try:
            producer.close(INTERRUPTED_S)
        except KeyboardInterrupt:
            producer.close(0)


def _send(producer: Producer, batches: Iterable[pa.RecordBatch], tally: _Tally, bar: Progress) -> None:
    """Send all batches. Take outcomes as they arrive, so that a failure ends the command early."""
    pending = tally.pending
    for batch in batches:
        tally.rows_at_send = batch.num_rows  # an interrupt may come during the send
        pending.append((producer.send(batch), batch.num_rows, batch.nbytes))
        tally.rows_at_send = 0
        while pending and (pending[0][0].done() or len(pending) > PENDING_MAX):
            tally.take(bar)
    while pending:
        tally.take(bar)


_REPEAT = (
    "the same command would store these rows twice: send only the missing rows, or send all rows to a new "
    "topic; with --scope either all rows are stored or none"
)


class _Tally:
    """Counts of the sends: acknowledged rows, bytes and partitions, and the pending sends."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.rows = self.size = self.sends = self.rows_at_send = 0
        self.pending: deque[tuple[SendFuture, int, int]] = deque()
        self._partitions: Counter[int] = Counter()

    def take(self, bar: Progress) -> None:
        """Wait for the outcome of the oldest send and count it. An interrupt leaves the send pending."""
        self.pending[0][0].exception()
        future, rows, size = self.pending.popleft()
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

    def report_early(self, topic: str) -> None:
        """Report the stored rows after a failure. The producer is closed, so all sends have their outcome."""
        self._count_pending()
        if self.rows and not self.as_json:
            click.echo(f"{topic}: at least {self.rows:,} rows are on disk", err=True)

    def _count_pending(self) -> int:
        """Count the pending sends; return the number of rows with an unknown outcome."""
        unknown = 0
        while self.pending:
            future, rows, size = self.pending.popleft()
            error = future.exception() if future.done() else None
            if future.done() and error is None:
                self._count(future.result(), rows, size)
                continue
            self._count_part(future, rows, size)
            if not future.done() or isinstance(error, UnknownOutcomeError):
                unknown += rows - sum(part.rows for part in future.appended)
        return unknown

    def interrupted_error(self) -> UnknownOutcomeError | None:
        """Return the error of an interrupted run; None if no row of the run is on disk."""
        unknown = self._count_pending() + self.rows_at_send
        values: dict[str, Any] = {
            "rows": self.rows,
            "rows_unknown": unknown,
            "partitions": sorted(self._partitions),
        }
        may_be = f"{unknown:,} unanswered rows may be"
        if self.rows:
            others = may_be if unknown else "the other rows are not"
            return PartlyStoredError(f"interrupted: {self._stored()}, {others}; {_REPEAT}", **values)
        if unknown:
            return UnknownOutcomeError(
                f"interrupted: no row was acknowledged, {may_be} on disk; {_REPEAT}", **values
            )
        return None

    def stage(self, batch: pa.RecordBatch) -> None:
        """Count a batch of a transaction. Its rows count as stored only after the commit."""
        self.size += batch.nbytes
        self.sends += 1

    def _count_part(self, future: SendFuture, rows: int, size: int) -> None:
        """Count the rows of a failed send that other partitions have stored."""
        appended = future.appended
        stored = sum(part.rows for part in appended)
        if stored:
            self._count(appended, stored, size * stored // rows)

    def partly_stored_error(self, error: RingfenceError | click.UsageError) -> PartlyStoredError:
        """Return the error for a failure after some rows were stored, with the failure as its reason."""
        reason = error.format_message().rstrip(".") if isinstance(error, click.UsageError) else error.message
        return PartlyStoredError(
            f"{self._stored()}, the other rows are not ({reason}); {_REPEAT}",
            rows=self.rows,
            partitions=sorted(self._partitions),
        )

    def _stored(self) -> str:
        return f"{self.rows:,} rows in {counted(len(self._partitions), 'partition')} are on disk"

    def report_transaction(self, topic: str, transaction: Transaction, seconds: float) -> None:
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
            click.echo(f"{topic}: epoch {transaction.epoch} was committed before; nothing is stored again")
        else:
            click.echo(
                f"{topic}: {transaction.rows:,} rows ({format_bytes(self.size)}) are on disk, committed as "
                f"epoch {transaction.epoch}, {seconds:.2f} s"
            )

    def report(self, topic: str, seconds: float) -> None:
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
        rate = f"{format_bytes(self.size / seconds)}/s" if seconds > 0 else "-"
        click.echo(
            f"{topic}: {self.rows:,} rows ({format_bytes(self.size)}) in "
            f"{counted(len(self._partitions), 'partition')} are on disk, {seconds:.2f} s, {rate}"
        )
