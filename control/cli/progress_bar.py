"""Show a progress bar for long commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ringfence.control.cli.output import format_bytes


class ProgressBar:
    """A bar that advances by rows and shows rows, bytes and rates as text."""

    def __init__(self, inner: Progress, label: str, total_rows: int | None) -> None:
        self._inner, self._size, self._rows = inner, 0, 0
        self._task = inner.add_task(label, total=total_rows, figures="")

    def advance(self, *, rows: int, size: int) -> None:
        self._size += size
        self._rows += rows
        elapsed = self._inner.tasks[0].elapsed or 0.0
        rate = (
            f"{format_bytes(self._size / elapsed)}/s, {self._rows / elapsed:,.0f} rows/s"
            if elapsed > 0.2
            else ""
        )
        figures = f"{self._rows:,} rows, {format_bytes(self._size)} {rate}"
        self._inner.update(self._task, advance=rows, figures=figures)


@contextmanager
def progress_bar(label: str, total_rows: int | None) -> Iterator[ProgressBar]:
    """Show a bar on stderr while the context is open; a spinner if the total is unknown."""
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    ]
    if total_rows is not None:
        columns[2:2] = [BarColumn(bar_width=24)]
        columns.append(TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as inner:
        yield ProgressBar(inner, label, total_rows)
