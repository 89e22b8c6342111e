"""Faults of the engine that concern layout changes: which seeds show each, or which story of the engine does.

They lie behind the cargo feature `planted` (native.py). docs/design/sealed_partitions.md and
docs/design/inheritance.md have the rules that they break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tests.sim.faults.plan import NAMED, Plan, with_layouts, with_stories

Kinds = dict[str, tuple[int, int]]


class Seeds(NamedTuple):
    """Plans that show a fault: with layout changes, or with these strikes alone."""

    fits: Callable[[Plan], bool] = lambda _: True
    kinds: Kinds | None = None

    def plans(self, seeds: Iterable[int]) -> Iterator[Plan]:
        for seed in seeds:
            drawn = Plan.drawn(seed)
            plan = with_layouts(drawn) if self.kinds is None else with_stories(drawn, self.kinds)
            if self.fits(plan):
                yield plan


def _has_name(plan: Plan) -> bool:
    return plan.seed % NAMED == 0 and not plan.keyless


def _has_writers(plan: Plan) -> bool:
    return plan.writers > 0 and not plan.keyless


CHANGES: Final[Kinds] = {"split": (300, 900), "merge": (400, 1_200), "repartition": (600, 1_800)}
FOUND: Final[dict[str, Seeds]] = {
    # what children inherit
    "no_inheritance": Seeds(_has_name, CHANGES),
    "segments_as_max": Seeds(_has_name, CHANGES),
    "greater_epoch_replaces": Seeds(_has_name, {"opens_at_fence": (300, 700)}),
    "owner_only_inherits": Seeds(kinds=CHANGES),
    # sealed partitions
    "sealed_is_opened": Seeds(kinds=CHANGES),
    "sealed_by_length": Seeds(kinds={"parted_source": (300, 900)}),
    "child_is_readable": Seeds(kinds=CHANGES),
    "ended_early": Seeds(kinds=CHANGES),
    # rows that are staged again
    "no_origin": Seeds(_has_writers, CHANGES),
}
"""By simulated clusters."""
ELSEWHERE: Final[dict[str, str]] = {
    "rest_left_out": "not in 52 seeds with a name: its successor seldom sends what came after the base",
    "forced_admits_at_once": "not in 60 seeds: a forced child seldom has a producer that sends again",
    "staged_below_mark": "not in 23 seeds with writers: a child seldom has staged rows below its mark",
    "page_without_forgotten": "no producer of a run of seconds is forgotten",
    "cut_keeps_pages": "an operator must choose two owners of one child, each without the other's rows",
    "gates_behind_last_page": "sources have no gates before there are cohorts",
    "pruned_is_new": "the source of a forced child must be pruned: long after the split",
    "seal_cuts_silently": "nobody appends after a fence, so a second fault is needed",
    "seal_in_memory": "the metadata says the same again at each start, so only the store alone shows it",
    "stored_is_last": "a connection keeps the order of answers: see `layouts.py`",
    "version_before_seal": "a client fetches a newer table in either case; the answer alone differs",
    "end_of_any_reader": "clients of the simulator know of lineage",
    "origin_forgotten": "a state record must come between a second staging and its publish",
    "push_forgotten": "redirects tell of a newer table as well",
    "pushed_to_all": "a question of how many frames are sent",
    "pushed_at_once": "a question of how many frames are sent",
    "first_not_counted": "what clients hold permits a prune alone, and gates no row",
    "given_as_of_the_node": "the same",
    "always_unchanged": "redirects ask for a table that is newer than the held one",
}
"""By a story of the engine (core/node/tests), and why not by seeds."""
