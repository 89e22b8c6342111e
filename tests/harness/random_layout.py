"""One random layout change at a time: a split, a merge or a repartition that the layout of a topic allows."""

from __future__ import annotations

import random
from typing import Final

import ringfence

PARTITIONS_MAX: Final = 24
"""ACTIVE ones of the topic: more are merged again."""


def changed_at_random(
    client: ringfence.Client, topic: str, dice: random.Random, wait_s: float, kind: str = ""
) -> str:
    """Make one change and wait for its end: of a kind, where the layout allows it, or of any.

    RingfenceError: it was refused, was aborted, or is not known.
    """
    parts, kind = client.layout(topic).active, kind or dice.choice(["split", "merge", "repartition"])
    if kind == "split" and len(parts) < PARTITIONS_MAX:
        into = dice.choice([2, 2, 3])
        done = client.admin.split(topic, dice.choice(parts).partition, into=into, wait_s=wait_s)
    elif kind == "merge" and len(parts) > 1:
        at = dice.randrange(len(parts) - 1)
        done = client.admin.merge(topic, parts[at].partition, parts[at + 1].partition, wait_s=wait_s)
    else:
        kind = "repartition"
        count = dice.choice([one for one in range(1, 17) if one != len(parts)])
        done = client.admin.repartition(topic, count, wait_s=wait_s)
    after = len(client.layout(topic).active)
    return f"{kind}, {len(parts)} partitions become {after}, gap {done.gap_us / 1e3:.0f} ms"
