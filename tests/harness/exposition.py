"""A strict parser of Prometheus' text format 0.0.4: it raises where promtool and telegraf refuse."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
# What the names of a family's samples may end with.
_PARTS = {"histogram": {"_bucket", "_sum", "_count"}, "summary": {"", "_sum", "_count"}}
_KINDS = {"counter", "gauge", "histogram", "summary", "untyped"}


@dataclass
class Family:
    name: str
    kind: str = "untyped"
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


def parsed(page: str) -> dict[str, Family]:
    """Families by name. AssertionError names the first line that the format forbids."""
    assert page.endswith("\n"), "the last line has no end"
    families: dict[str, Family] = {}
    helped: set[str] = set()
    typed: set[str] = set()
    current = ""
    for line in page.splitlines():
        if line.startswith("# "):
            word, name, rest = (*line[2:].split(" ", 2), "", "")[:3]
            assert word in {"HELP", "TYPE"}, f"a comment that is neither HELP nor TYPE: {line}"
            assert _NAME.fullmatch(name), line
            if word == "HELP":
                assert name not in helped, f"second HELP line: {line}"
                helped.add(name)
            else:
                assert name not in typed, f"second TYPE line: {line}"
                assert rest in _KINDS, line
                assert not families.get(name, Family(name)).samples, f"TYPE after samples: {line}"
                typed.add(name)
                families.setdefault(name, Family(name)).kind = rest
            current = name
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, f"no sample: {line!r}"
        name, labels, value = found[1], _labels(found[2] or "", line), float(found[3])
        family = families.setdefault(current, Family(current))
        part = name.removeprefix(current)
        assert name.startswith(current) and part in _PARTS.get(family.kind, {""}), (
            f"a sample apart from its family: {line}"
        )
        labels = tuple(sorted((*labels, ("__name__", name)))) if part else labels
        assert labels not in family.samples, f"a second value of one series: {line}"
        assert family.kind != "counter" or value >= 0, line
        family.samples[labels] = value
    return families


def _labels(inside: str, line: str) -> tuple[tuple[str, str], ...]:
    found, at = [], 0
    while at < len(inside):
        label = _LABEL.match(inside, at)
        assert label, f"labels of {line!r}"
        found.append((label[1], label[2]))
        at = label.end()
    assert len({name for name, _ in found}) == len(found), f"a label twice: {line}"
    return tuple(sorted(found))
