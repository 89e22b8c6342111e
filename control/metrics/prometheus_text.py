"""Write metrics in Prometheus' text format, version 0.0.4.

Names have no suffix `_total`, which this format does not require. prometheus_client adds the suffix to every
counter, so this module writes the format itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """All samples of one name. `kind` is `counter`, `gauge` or `histogram`.

    `parts`, of a histogram: samples with the suffix of their name.
    """

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Labels, float], ...] = ()
    parts: tuple[tuple[str, Labels, float], ...] = ()


def histogram_parts(
    labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> tuple[tuple[str, Labels, float], ...]:
    """The samples of one histogram. `counts` has one more place, for values above all bounds."""
    edges = [*map(_number, bounds), "+Inf"]
    buckets = tuple(
        ("_bucket", (*labels, ("le", edge)), float(count))
        for edge, count in zip(edges, accumulate(counts), strict=True)
    )
    return (*buckets, ("_sum", labels, total), ("_count", labels, float(sum(counts))))


def encode(families: Iterable[Family]) -> bytes:
    lines = []
    for family in families:
        help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {family.name} {help_text}", f"# TYPE {family.name} {family.kind}"]
        plain = (("", labels, value) for labels, value in family.samples)
        for suffix, labels, value in (*plain, *family.parts):
            pairs = ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in sorted(labels))
            lines.append(f"{family.name}{suffix}{f'{{{pairs}}}' if pairs else ''} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines).encode()


def _number(bound: float) -> str:
    return f"{bound:g}"
