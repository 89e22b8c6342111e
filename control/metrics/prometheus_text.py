"""Write metrics in Prometheus' text format, version 0.0.4.

Names have no suffix `_total`, which this format does not require. prometheus_client adds the suffix to every
counter, so this module writes the format itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """All samples of one name. `kind` is `counter` or `gauge`."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Labels, float], ...]


def encode(families: Iterable[Family]) -> bytes:
    lines = []
    for family in families:
        help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {family.name} {help_text}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.samples:
            pairs = ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in sorted(labels))
            lines.append(f"{family.name}{f'{{{pairs}}}' if pairs else ''} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines).encode()
