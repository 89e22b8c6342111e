"""How commands speak: tables for people, NDJSON for programs, progress on stderr and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from ringfence.control.cli.escape_control import printable
from ringfence.control.cli.exit_codes import Exit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_ENCODER = msgspec.json.Encoder(enc_hook=str)

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")


def emit(values: Mapping[str, Any]) -> None:
    """One line of NDJSON, out at once: a reader of the pipe sees it as it comes."""
    emit_rows([values])


def emit_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """A line each, in one write. Bytes become base64, decimals strings, floats that JSON lacks null."""
    sys.stdout.buffer.write(_ENCODER.encode_lines(rows))
    sys.stdout.buffer.flush()


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, ids: Collection[str] = ()
) -> None:
    """A table on stdout, each value on one line. Columns of numbers only are set to the right.

    `ids`: columns whose numbers are names; they are shown as options take them, without separators.
    """
    from rich.console import Console  # noqa: PLC0415 - rich loads in 0.1 s, and --json needs none of it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    kept = [list(row) for row in rows]
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, show_header=any(columns)
    )
    for place, name in enumerate(columns):
        numbers = bool(kept) and all(isinstance(row[place], int | float) for row in kept)
        table.add_column(Text(printable(name)), justify="right" if numbers else "left", overflow="fold")
    for row in kept:
        table.add_row(
            *(
                Text(str(value) if name in ids and value is not None else shown(value))
                for name, value in zip(columns, row, strict=True)
            )
        )
    # Without a terminal nothing is wrapped: a file has no width.
    draw(Console(width=None if sys.stdout.isatty() else 10_000, highlight=False), table)


def draw(console: Console, what: RenderableType) -> None:
    """On stdout. Not by rich itself: on a closed pipe it would end the program, with 1."""
    with console.capture() as drawn:
        console.print(what)
    sys.stdout.write(drawn.get())
    sys.stdout.flush()


def shown(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, bytes):
        return value.hex()
    return printable(str(value))


def shown_bytes(size: float) -> str:
    """Bytes with a decimal unit, as disks and networks are measured."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class Progress(Protocol):
    """How far a long command is."""

    def advance(self, *, rows: int, size: int) -> None: ...


class _Silent:
    def advance(self, *, rows: int, size: int) -> None:
        """Nobody watches."""


@contextmanager
def progress(label: str, total_rows: int | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """Rows, bytes, rate and, where the total is known, the time left; on stderr if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from ringfence.control.cli.progress_bar import bar  # noqa: PLC0415 - as above

    with bar(label, total_rows) as shown_bar:
        yield shown_bar


def refuse_binary_to_terminal(what: str) -> None:
    """UsageError when stdout is a terminal."""
    if sys.stdout.isatty():
        raise click.UsageError(f"{what} is binary and stdout is a terminal: redirect it, or name a file")


def confirm(question: str, *, yes: bool) -> None:
    """Return if it is agreed to; else the command ends: after a "no" with 130, unanswered as misused."""
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # ends the question's line
        raise click.UsageError("nobody answered, nothing was changed; pass --yes") from None
    if not agreed:
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(Exit.INTERRUPTED)
