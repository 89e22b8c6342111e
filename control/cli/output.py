"""Output of commands: tables, NDJSON with --json, and progress on stderr if stderr is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import click
import msgspec

from ringfence.control.cli.escape_control import printable
from ringfence.control.cli.exit_codes import Exit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Between two columns of a table.
GAP: Final = "  "
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
    rows = [list(row) for row in rows]
    is_numeric = [
        bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        for place in range(len(columns))
    ]
    lines = [
        [
            str(value) if name in ids and value is not None else format_value(value)
            for name, value in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    if any(columns):
        lines.insert(0, [printable(name) for name in columns])
    widths = [max((_width(line[place]) for line in lines), default=0) for place in range(len(columns))]
    is_terminal = sys.stdout.isatty()
    # Lines are folded on a terminal only: a file has no width.
    if is_terminal and sum(widths) + len(GAP) * (len(widths) - 1) > shutil.get_terminal_size().columns:
        _draw_folded(title, lines, is_numeric, has_header=any(columns))
        return
    is_styled = is_terminal and os.environ.get("TERM") != "dumb"
    drawn = [_line(line, widths, is_numeric) for line in lines]
    if is_styled and any(columns):
        drawn[0] = click.style(drawn[0], bold=True)
    if title:
        drawn.insert(0, click.style(title, italic=True) if is_styled else title)
    sys.stdout.write("".join(f"{line}\n" for line in drawn))
    sys.stdout.flush()


def _line(cells: Sequence[str], widths: Sequence[int], is_numeric: Sequence[bool]) -> str:
    """Return one line of a table, each cell as wide as its column, without blanks at the end."""
    padded = []
    for cell, width, is_right in zip(cells, widths, is_numeric, strict=True):
        blanks = " " * (width - _width(cell))
        padded.append(blanks + cell if is_right else cell + blanks)
    return GAP.join(padded).rstrip(" ")


def _width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - rich loads in 0.1 s, and most tables do not need it

    return cell_len(text)


def _draw_folded(
    title: str, lines: Sequence[Sequence[str]], is_numeric: Sequence[bool], *, has_header: bool
) -> None:
    """Print a table that is wider than the terminal: its cells are folded. Takes 0.5 ms a row."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, show_header=has_header)
    names = lines[0] if has_header else [""] * len(is_numeric)
    for name, is_right in zip(names, is_numeric, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for line in lines[has_header:]:
        table.add_row(*map(Text, line))
    draw(Console(highlight=False), table)


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
