"""Kinds of strikes with their mean times, from and to, in milliseconds: what a seed draws from."""

from __future__ import annotations

from typing import Final

KINDS: Final[dict[str, tuple[int, int]]] = {
    # kind: mean time between strikes, drawn between these, in ms
    "kill": (1_500, 5_000),
    "power": (1_500, 5_000),
    "kill_leader": (1_500, 4_000),
    "power_all": (5_000, 12_000),
    "die_in_call": (1_000, 4_000),
    "partition": (1_000, 4_000),
    "isolate": (1_000, 4_000),
    "one_way": (1_000, 4_000),
    "pause": (1_000, 4_000),
    "pause_leader": (2_000, 5_000),
    "pause_all": (4_000, 10_000),
    "clock_rate": (1_500, 5_000),
    "wall_jump": (500, 3_000),
    "hang_up": (400, 3_000),
    "storm": (1_500, 5_000),
    "sync_error": (2_000, 6_000),
    "write_error": (3_000, 8_000),
    "full": (2_000, 6_000),
    "row_sync_error": (2_000, 6_000),
    "row_read_error": (2_000, 6_000),
    "row_full": (2_000, 6_000),
    "row_rot": (2_000, 6_000),
    "rot": (2_000, 6_000),
    "slow_disk": (2_000, 6_000),
    "compact": (1_000, 4_000),
    "transfer": (1_500, 5_000),
    "vote": (1_500, 4_000),
    "change": (1_500, 4_000),
    "burst": (500, 3_000),
    "truncate": (300, 1_500),
    "forgotten": (2_500, 6_000),
    "unheard": (1_500, 4_000),
    "away": (1_500, 4_000),
    "woken": (4_000, 10_000),
    "emptied": (1_500, 4_000),
}
CHANGES: Final[dict[str, tuple[int, int]]] = {
    "move": (300, 2_000),
    "balance": (2_000, 6_000),
    "reverse": (1_500, 5_000),
    "steer": (1_000, 4_000),
    "drain": (2_500, 6_000),
    "cable": (300, 3_000),
    "kill_owner": (1_500, 4_000),
}
"""What is drawn beside them where partitions move."""
DISKS: Final[dict[str, tuple[int, int]]] = {"late_rows": (2_000, 6_000)}
"""What is drawn beside them in some seeds."""
LATE_THEME: Final[dict[str, tuple[int, int]]] = {
    "late_rows": (1_000, 2_500),
    "kill": (4_000, 9_000),
    "partition": (4_000, 9_000),
}
"""All that a seed has whose theme it is."""
OLDER_THEME: Final[dict[str, tuple[int, int]]] = {
    "older": (500, 1_200),
    "kill": (4_000, 9_000),
    "kill_owner": (1_500, 3_000),
}
"""All that a seed has where the rows of one machine come back older."""
FORCED_THEME: Final[dict[str, tuple[int, int]]] = {
    "force": (400, 1_200),
    "truncate": (700, 2_500),
    "move": (2_500, 7_000),
    "reverse": (4_000, 9_000),
    "kill_owner": (4_000, 9_000),
    "kill": (6_000, 12_000),
    "hang_up": (1_000, 4_000),
}
"""All that a seed has where an operator chooses owners without a majority."""
TRUNCATED: Final[dict[str, tuple[int, int]]] = {
    "truncate": (300, 1_500),
    "emptied": (2_500, 6_000),
    "move": (500, 2_500),
    "kill_owner": (1_500, 4_000),
    "power_all": (4_000, 9_000),
}
"""What is drawn beside them where much of replicated rows is given up."""
LAYOUTS: Final[dict[str, tuple[int, int]]] = {
    "split": (300, 1_500),
    "merge": (400, 2_000),
    "repartition": (1_000, 4_000),
    "layouts": (1_000, 4_000),
    "abort_layout": (400, 3_000),
    "split_other": (500, 2_500),
    "abort_soon": (800, 3_000),
    "empty_sealed": (1_500, 5_000),
    "kill_owner": (2_500, 7_000),
    "move": (1_500, 6_000),
    "unheard_source": (700, 3_000),
    "opens_at_fence": (1_500, 5_000),
    "parted_source": (5_000, 15_000),
    "lagging_sealed": (5_000, 15_000),
}
"""What is drawn beside the others in a seed with layout changes; each is in four of five such seeds."""
FORCED_LAYOUTS: Final[dict[str, tuple[int, int]]] = {
    "split": (300, 1_500),
    "merge": (400, 2_000),
    "repartition": (1_000, 4_000),
    "abort_layout": (400, 3_000),
    "force_child": (1_500, 5_000),
    "force_sealed": (1_500, 5_000),
}
"""What is drawn in a seed in which an operator chooses owners as well."""
