"""Output of commands: tables, NDJSON with --json, and progress on stderr if stderr is a terminal."""

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

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line on stdout."
)


def emit(values: Mapping[str, Any]) -> None:
    """Print one line of NDJSON and flush it, so that a reader of the pipe gets it immediately."""
    emit_rows([values])


def emit_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line per row, in one write. Bytes become base64, decimals strings, NaN and infinities null."""
    sys.stdout.buffer.write(_ENCODER.encode_lines(rows))
    sys.stdout.buffer.flush()


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, ids: Collection[str] = ()
) -> None:
    """Print a table on stdout, each value on one line. Columns that have only numbers are right-aligned.

    `ids`: columns of identifiers; numbers in them have no thousands separators, as options expect them.
    """
    from rich.console import Console  # noqa: PLC0415 - rich loads in 0.1 s, and --json does not need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [list(row) for row in rows]
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, show_header=any(columns)
    )
    for place, name in enumerate(columns):
        is_numeric = bool(cells) and all(isinstance(row[place], int | float) for row in cells)
        table.add_column(Text(printable(name)), justify="right" if is_numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(
            *(
                Text(str(value) if name in ids and value is not None else format_value(value))
                for name, value in zip(columns, row, strict=True)
            )
        )
    # Lines are wrapped on a terminal only: a file has no width.
    draw(Console(width=None if sys.stdout.isatty() else 10_000, highlight=False), table)


def draw(console: Console, content: RenderableType) -> None:
    """Print to stdout without rich, which exits with 1 when the pipe is closed."""
    with console.capture() as capture:
        console.print(content)
    sys.stdout.write(capture.get())
    sys.stdout.flush()


def format_value(value: Any) -> str:
    """Return a value as text for a table."""
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


def format_bytes(size: float) -> str:
    """Return a size in bytes with a decimal unit: kB, MB, GB, TB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class Progress(Protocol):
    """Receiver of the progress of a long command."""

    def advance(self, *, rows: int, size: int) -> None: ...


class _NoProgress:
    def advance(self, *, rows: int, size: int) -> None:
        """Do nothing: stderr is not a terminal."""


@contextmanager
def progress(label: str, total_rows: int | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """Show rows, bytes, rate and, with a total, the time left on stderr, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield _NoProgress()
        return
    from ringfence.control.cli.progress_bar import progress_bar  # noqa: PLC0415 - as above

    with progress_bar(label, total_rows) as bar:
        yield bar


def refuse_binary_to_terminal(what: str) -> None:
    """UsageError when stdout is a terminal."""
    if sys.stdout.isatty():
        raise click.UsageError(f"{what} is binary and stdout is a terminal: redirect stdout, or name a file")


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees. After a "no" the command exits with 130; without an answer: UsageError."""
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # end the line of the question
        raise click.UsageError("the confirmation got no answer, nothing was changed; pass --yes") from None
    if not agreed:
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(Exit.INTERRUPTED)
