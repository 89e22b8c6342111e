"""What is done to a node, and undone: each is one fault, after which the node serves again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.chaos.fleet import Fleet

SHORT_S, LONG_S = 0.3, 3.5
"""How long a harm lasts: from a hiccup to longer than a node needs to be failed (2 s)."""


def kill(fleet: Fleet, place: int, dice: random.Random) -> None:
    """SIGKILL; it starts again over what is on its disk and in the page cache."""
    fleet.nodes[place].kill()
    time.sleep(dice.uniform(SHORT_S, LONG_S))
    fleet.nodes[place].start()


def pause(fleet: Fleet, place: int, dice: random.Random) -> None:
    """SIGSTOP: it wakes up and believes that no time has passed."""
    fleet.nodes[place].freeze()
    time.sleep(dice.uniform(SHORT_S, LONG_S))
    fleet.nodes[place].wake()


def partition(fleet: Fleet, place: int, dice: random.Random) -> None:
    """No packet to other nodes, or none from them; clients still reach it."""
    fleet.network.cut(place, fleet.others(place), one_way=dice.random() < 0.3)
    time.sleep(dice.uniform(SHORT_S, LONG_S))
    fleet.network.heal()


def power_cut(fleet: Fleet, place: int, dice: random.Random) -> None:
    """What was not synced is gone. Frozen first: no answer leaves for what the disk no longer keeps."""
    node, disk = fleet.nodes[place], fleet.disks[place]
    node.freeze()
    disk.cut_power()
    node.kill()
    time.sleep(dice.uniform(SHORT_S, LONG_S))
    disk.unmount()
    disk.mount()
    node.start()


def full_disk(fleet: Fleet, place: int, dice: random.Random) -> None:
    """No space: it refuses rows, says so, and goes on by itself when there is space again."""
    filler = fleet.disks[place].fill()
    time.sleep(dice.uniform(SHORT_S, LONG_S))
    filler.unlink()


FAULTS: dict[str, Callable[[Fleet, int, random.Random], None]] = {
    "kill": kill, "pause": pause, "partition": partition, "power_cut": power_cut, "full_disk": full_disk,
}  # fmt: skip
