"""Layout changes under random commands: invariants, a judge, two replicas, refusals without a trace.

Seeded, so that what the walks reach is known.
"""

from __future__ import annotations

from collections import Counter

from tests.fakes.layout_walk import walk

WALKS = 80


def test_random_walks_keep_every_rule_and_reach_every_step() -> None:
    seen = Counter[str]()
    for seed in range(WALKS):
        seen += walk(seed).seen
    for command in (
        "PrepareLayout",
        "HoldLayout",
        "CommitLayout",
        "ConfirmLayout",
        "AbortLayout",
        "FinalizeLayout",
        "PrunePartitions",
        "CommitScope",
        "PrepareChange",
    ):
        assert seen[f"{command} taken"] >= 20, seen
        assert seen[f"{command} refused"] >= 5, seen
