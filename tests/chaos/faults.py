"""What is done to a node, and undone: each is one fault, after which the node serves again."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable

from tests.chaos.fleet import Fleet
from tests.chaos.mover import RUN_S
from tests.harness.clocks import CLOCK_READ_S
from tests.harness.processes import until

SHORT_S, LONG_S = 0.3, 3.5
"""How long a harm lasts: from a hiccup to longer than a node needs to be failed (2 s)."""
JUMP_S_MIN, JUMP_S_MAX = 30 * 60, 55 * 60
"""A node believes such a jump immediately; one of more than an hour only after ten minutes."""
HONOURED_S = 3 * RUN_S
"""For a node to take rows under its new clock. One that was failed gets a partition back by a move.

That move comes after a run which waits for another node until it is cancelled.
"""
TRACED_S = 60.0
"""For a tracer to delay the first sync: on a loaded machine it attaches late."""


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


def failing_disk(fleet: Fleet, place: int, dice: random.Random) -> None:
    """Every read and write ends in EIO while the node lives on; then a new process finds a sound disk."""
    node, disk = fleet.nodes[place], fleet.disks[place]
    disk.fail()
    time.sleep(dice.uniform(SHORT_S, LONG_S))
    node.kill()  # it may have ended by itself: that is one of the two sound ways to take EIO
    disk.unmount()
    disk.mount()
    node.start()


def slow_disk(fleet: Fleet, place: int, dice: random.Random) -> None:
    """Each sync takes longer, of the log and of the metadata; all else is slower, too, for it is traced."""
    delay_us = dice.choice((20_000, 60_000, 200_000))
    told = fleet.folder(place) / "syncs"
    syncs = "fsync,fdatasync"
    command = (
        "strace",
        "-f",
        "-qq",
        "-o",
        str(told),
        "-e",
        f"trace={syncs}",
        "-e",
        f"inject={syncs}:delay_enter={delay_us}",
        "-p",
        str(fleet.nodes[place].pid),
    )
    told.write_text("")

    def has_delayed() -> bool:
        return "DELAYED" in told.read_text() or not fleet.alive(place)

    with subprocess.Popen(command) as tracer:
        try:
            until(has_delayed, TRACED_S, f"strace delays a sync of node {fleet.id(place)}")
            time.sleep(dice.uniform(SHORT_S, LONG_S))
        finally:
            tracer.send_signal(signal.SIGINT)


def clock_jump(fleet: Fleet, place: int, dice: random.Random) -> None:
    """The wall clock jumps, up to hours ahead, the next time behind, and stays wrong until then."""
    clock = fleet.clocks[place]
    sign = -1 if clock.ahead_s > 0 else 1
    ahead_s = sign * dice.randrange(JUMP_S_MIN, JUMP_S_MAX)
    clock.set(ahead_s)
    lasts_s = dice.uniform(1.0, LONG_S)
    if ahead_s < 0:  # such a row's time is that of the one before it
        time.sleep(lasts_s)
        return
    time.sleep(CLOCK_READ_S)
    with fleet.favour(place):
        owned = fleet.owns_for(place, lasts_s, HONOURED_S)
        assert owned, f"node {fleet.id(place)} owned no partition for {lasts_s:.1f} s"


FAULTS: dict[str, Callable[[Fleet, int, random.Random], None]] = {
    "kill": kill,
    "pause": pause,
    "partition": partition,
    "power_cut": power_cut,
    "full_disk": full_disk,
    "failing_disk": failing_disk,
    "slow_disk": slow_disk,
    "clock_jump": clock_jump,
}
