"""Seeds that showed a planted bug when they were last tried; tests try them before all others.

A search through dozens of seeds that show nothing takes minutes, a run of one that shows the bug a second.
A change of what runs may change what a seed shows: a test then goes on with its other seeds, slower and not
weaker. `python -m tests.sim.planted`, given the bug's table and name, prints the seed for a new line here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

KNOWN: Final[dict[str, tuple[int, ...]]] = {
    # the control plane
    "timeout_on_wall_clock": (44,),
    "election_on_one_vote": (2,),
    "vote_for_shorter_log": (6,),
    "one_half_decides": (3,),
    "change_before_own_term": (3,),
    "read_before_own_term": (18,),
    "woken_leader_does_not_wait": (2, 6),
    "read_without_a_quorum": (18,),
    "truncate_what_matches": (4,),
    # the engine in a cluster
    "ack_before_sync": (3,),
    # changes and replicas
    "what_is_not_durable_proves": (15,),
    "an_older_log_counts": (27,),
    # transactions
    "staged_before_sync": (2, 3),
    "epochs_in_any_order": (137,),
    "dead_attempt_published": (7, 9),
    "stages_dropped": (2,),
    # truncates and forced owners
    "cut_keeps_producers": (5, 10),
    "position_of_any_epoch": (2,),
    "start_forgotten": (7,),
    "start_of_any_epoch": (7, 3),
    # layout changes
    "seal_before_the_mark": (6, 2),
    "abort_draws_no_epoch": (3, 6),
    "restart_aborts_nothing": (3, 5),
    "abort_leaves_children": (3, 2),
    "one_source_only": (6,),
    "held_is_sealed": (7, 9),
    "lost_is_not_stored": (4, 2),
    "children_at_once": (2,),
    "two_bodies_of_one_send": (24, 12),
    "points_by_the_greatest": (33, 6),
    "reader_ends_at_an_empty_answer": (27, 26),
    # the engine in layout changes
    "segments_as_max": (18, 12),
    "greater_epoch_replaces": (60, 57, 42),
    "owner_only_inherits": (3, 1),
    "ended_early": (4, 2),
    "no_origin": (13,),
}
"""By the bug's name, the cheapest first."""


def known_first(name: str, seeds: Iterable[int]) -> list[int]:
    """All of `seeds`, those that have shown the bug before the others."""
    left = [*seeds]
    known = [seed for seed in KNOWN.get(name, ()) if seed in left]
    return [*known, *(seed for seed in left if seed not in known)]
