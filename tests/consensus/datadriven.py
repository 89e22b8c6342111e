"""Files of commands with their expected output, in the format of cockroachdb/datadriven.

# a comment between cases
command key key=value key=(several, values)
input, any number of lines
----
expected output up to a blank line
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"


class ScriptSyntaxError(Exception):
    """A file is no script; the text names file and line."""


@dataclass(frozen=True, slots=True)
class Argument:
    """`key`, `key=value` or `key=(v, w)`; a bare key has no values."""

    key: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One command; `line` is where it stands, from 1."""

    line: int
    command: str
    arguments: tuple[Argument, ...]
    input: str
    expected: str


def cases_of(path: Path) -> list[Case]:
    """All cases of a file.

    Raises:
        ScriptSyntaxError: it is no script.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return list(_cases(path, lines))


def _cases(path: Path, lines: list[str]) -> Iterator[Case]:
    at = 0
    while at < len(lines):
        directive = lines[at].strip()
        first = at + 1
        at += 1
        if not directive or directive.startswith("#"):
            continue
        while directive.endswith("\\") and at < len(lines):
            directive = directive[:-1] + " " + lines[at].strip()
            at += 1
        try:
            command, arguments = parse_directive(directive)
            end = lines.index(SEPARATOR, at)
        except ValueError as error:
            raise ScriptSyntaxError(f"{path}:{first}: {error}: {directive!r}") from error
        given = "\n".join(lines[at:end]).strip()
        expected, at = _expected(path, lines, end + 1)
        yield Case(first, command, arguments, given, "".join(line + "\n" for line in expected))


def _expected(path: Path, lines: list[str], at: int) -> tuple[list[str], int]:
    """The expected lines, and where the next case may begin."""
    if at < len(lines) and lines[at] == SEPARATOR:
        for end in range(at + 1, len(lines) - 1):
            if lines[end] == lines[end + 1] == SEPARATOR:
                return lines[at + 1 : end], end + 3
        raise ScriptSyntaxError(f"{path}:{at + 1}: the double separator is never closed")
    end = next((i for i in range(at, len(lines)) if not lines[i].strip()), len(lines))
    return lines[at:end], end + 1


def parse_directive(directive: str) -> tuple[str, tuple[Argument, ...]]:
    """Command and arguments. ValueError where parentheses do not close."""
    command, _, rest = directive.partition(" ")
    arguments = []
    at = 0
    while at < len(rest):
        if rest[at] == " ":
            at += 1
            continue
        end = next((i for i in range(at, len(rest)) if rest[i] in " ="), len(rest))
        key = rest[at:end]
        if end == len(rest) or rest[end] == " ":
            arguments.append(Argument(key))
            at = end
        elif rest[end + 1 : end + 2] == "(":
            values, at = _values(rest, end + 2)
            arguments.append(Argument(key, values))
        else:
            stop = next((i for i in range(end + 1, len(rest)) if rest[i] == " "), len(rest))
            arguments.append(Argument(key, (rest[end + 1 : stop],)))
            at = stop
    return command, tuple(arguments)


def _values(text: str, at: int) -> tuple[tuple[str, ...], int]:
    values: list[str] = []
    depth, start = 1, at
    while at < len(text):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if depth == 0:
                return (*values, text[start:at]), at + 1
        elif text[at] == "," and depth == 1:
            values.append(text[start:at])
            while text[at + 1 : at + 2] == " ":
                at += 1
            start = at + 1
        at += 1
    raise ValueError("a parenthesis is not closed")
