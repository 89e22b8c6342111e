"""Tables of the command line: the text in a file, and on terminals that are wide enough or too narrow."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringfence.control.cli.output import format_value, show_table

TABLES: list[tuple[Sequence[str], list[list[Any]]]] = [
    (("name", "rows"), [["a", 1_000], ["long name", 2]]),
    (("name", "rows"), []),
    (("", ""), [["state", "serving"], ["index", 7]]),
    (("wide", "mixed"), [["日本語", 1], ["é", "x"], ["👍🏽", None]]),
    (("n", "flag", "real", "bytes"), [[1, True, 0.5, b"\x00\xff"], [20, False, -1.0, b""]]),
    (("text",), [["x" * 300], ["a\nb\x1b[31m"], [""]]),
]


def by_rich(columns: Sequence[str], rows: list[list[Any]]) -> str:
    """The same table, drawn by rich without a limit of the width."""
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for place, name in enumerate(columns):
        is_numeric = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        table.add_column(Text(name), justify="right" if is_numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(format_value(value)) for value in row))
    console = Console(width=10_000, file=io.StringIO(), highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


@pytest.mark.parametrize(("columns", "rows"), TABLES)
def test_a_table_in_a_file_has_the_columns_that_rich_draws(
    columns: Sequence[str], rows: list[list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    show_table("", columns, rows)
    assert capsys.readouterr().out == by_rich(columns, rows)


def test_a_title_stands_above_and_ids_have_no_separators(capsys: pytest.CaptureFixture[str]) -> None:
    title = "a title that is longer than all of the table's columns together"
    show_table(title, ("id", "rows"), [[1234, 5678], [9, 1]], ids=("id",))
    assert capsys.readouterr().out.splitlines() == [title, "  id   rows", "1234  5,678", "   9      1"]


def on_terminal(columns: int, term: str) -> list[str]:
    """The lines of a table of 27 columns on a terminal of this width."""
    program = (
        "from ringfence.control.cli.output import show_table\n"
        "show_table('title', ('name', 'text'), [['first', 'x' * 20], ['2', 'y']])"
    )
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": term}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-c", program], stdout=follower, env=environment) as process:
        os.close(follower)
        data = b""
        while True:
            try:
                more = os.read(leader, 4096)
            except OSError:  # the terminal is gone with the process
                break
            data += more
        assert process.wait(30) == 0
    os.close(leader)
    return [line.rstrip() for line in data.decode().splitlines()]


def test_on_a_terminal_heads_are_bold_and_only_wide_tables_are_folded() -> None:
    rows = [f"first  {'x' * 20}", "2      y"]
    assert on_terminal(27, "xterm") == ["\x1b[3mtitle\x1b[0m", "\x1b[1mname   text\x1b[0m", *rows]
    assert on_terminal(27, "dumb") == ["title", "name   text", *rows]
    narrow = [re.sub("\x1b\\[[0-9]*m", "", line).rstrip() for line in on_terminal(26, "xterm")]
    assert narrow == ["title", "name   text", f"first  {'x' * 19}", "       x", rows[1]]
