"""Cohorts under random commands: invariants, a judge, two replicas, refusals without a trace.

Seeded, so that what the walks reach is known.
"""

from __future__ import annotations

from collections import Counter

from tests.fakes.cohort_walk import walk

WALKS = 40


def test_random_walks_keep_every_rule_and_reach_every_command() -> None:
    seen = Counter[str]()
    for seed in range(WALKS):
        seen += walk(seed).seen
    for command, taken, refused in (
        ("CreateCohort", 50, 20),
        ("ChangeCohort", 10, 10),
        ("DeleteCohort", 5, 0),
        ("DeleteTopic", 2, 2),
        ("RegisterMembers", 100, 0),
        ("RemoveMembers", 50, 0),
        ("PublishPlan", 100, 100),
        ("MarkDrained", 200, 0),
        ("SeekCohort", 50, 10),
        ("MarkBegun", 100, 0),
        ("PrunePartitions", 50, 20),
        ("FinalizeLayout", 100, 100),
    ):
        assert seen[f"{command} taken"] >= taken, seen
        assert seen[f"{command} refused"] >= refused, seen
