"""Generate the tables of docs/operations.md from the code: `python -m tests.documents [--check]`."""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from pathlib import Path

from ringfence.control.cli.exit_codes import MEANINGS
from ringfence.control.metrics.metric_definitions import kind_of, metric_of
from ringfence.control.runtime.process.settings import Settings, flag_name
from ringfence.native import errors

TOTALS_OF_TRANSPORT = {"bodies_cut"}
"""Listed among the levels, for they are not the engine's."""
ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "operations.md"


def settings() -> str:
    rows = ["| flag, `RINGFENCE_` variable, key | default | what, unit, reason |", "|---|---|---|"]
    for key, field in Settings.model_fields.items():
        default = "" if field.is_required() else f"`{field.default}`"
        rows.append(f"| `--{flag_name(key)}`, `{key.upper()}`, `{key}` | {default} | {field.description} |")
    return "\n".join(rows)


def exit_codes() -> str:
    rows = [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def metrics() -> str:
    counters = (ROOT / "core" / "node" / "src" / "counters.rs").read_text()
    block = counters.split("counters! {", 1)[1].split("\n}", 1)[0]
    found = re.findall(r"(\w+): \"([^\"]+)\"", block)
    assert found, "counters.rs has another shape now"
    levels = [
        (name, what)
        for file in ("engine/status.rs", "runtime/engine_loop.rs")
        for what, name in re.findall(
            r"// (.+)\n\s*\(\s*\"(\w+)\",", (ROOT / "core" / "node" / "src" / file).read_text()
        )
    ]
    wrong = [name for name, _ in found if kind_of(name) != "counter"]
    wrong += [name for name, _ in levels if (kind_of(name) == "counter") != (name in TOTALS_OF_TRANSPORT)]
    assert not wrong, f"control/metrics/metric_definitions.py, LEVELS: {wrong}"
    rows = [
        f"| `{metric_of(name).removeprefix('ringfence_')}` | {kind_of(name)} | {what} |"
        for name, what in [*found, *levels]
    ]
    heading = "| metric | kind | counts since the start (counter), or how many there are now (gauge) |"
    return "\n".join([heading, "|---|---|---|", *rows])


def codes() -> str:
    spec = tomllib.loads((ROOT / "core" / "wire" / "wire.toml").read_text())
    rows = ["| refusal | retriable | meaning |", "|---|---|---|"]
    for name, item in spec["codes"].items():
        meaning = item["doc"] or name.replace("_", " ")
        rows.append(f"| `{name}` | {'yes' if item['retriable'] else 'no'} | {meaning} |")
    return "\n".join(rows)


def error_classes() -> str:
    rows = ["| class | means, and what to do |", "|---|---|"]
    for name, kind in vars(errors).items():
        own = (
            inspect.isclass(kind)
            and issubclass(kind, errors.RingfenceError)
            and kind.__module__ == errors.__name__
        )
        if own and not name.startswith("_"):
            first = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
            parent = kind.__mro__[1].__name__
            rows.append(f"| `{name}` ({parent}) | {first} |")
    return "\n".join(rows)


TABLES = {
    "settings": settings,
    "exit codes": exit_codes,
    "metrics": metrics,
    "refusals": codes,
    "errors": error_classes,
}


def filled(text: str) -> str:
    """The document with the table after each `<!-- table: NAME -->` line generated again."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}\n"

    return re.sub(r"<!-- table: ([a-z ]+) -->\n(?:\|[^\n]*\n)*", table, text)


def main(arguments: list[str]) -> int:
    """Write the tables, or with `--check` say whether they are fresh: exit code 1 if they are not."""
    text = DOCUMENT.read_text()
    fresh = filled(text)
    if arguments == ["--check"]:
        return int(fresh != text)
    DOCUMENT.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
