"""When a node that says nothing is taken for silent: it stands still, its host is lost, the way there is cut.

Nothing else tells so before ZeroMQ's heartbeat does, 10 to 30 s later; a cluster has another owner after 2 to
3 s. So who waits for an answer and hears nothing asks (PROBE_S) for what any node answers at
once, whatever it holds back, and takes a node that leaves that without an answer (SILENT_S) for silent.

Silence alone moves no batch: a node may be slow, and a second copy of all that waits would make it slower. It
only makes the client ask another node: for the tables, and whatever any node may serve. A newer table that
names another owner, or owner epoch, moves what the former one did not answer (`FORMER_S`).
`failover.py` does all that.
"""

from __future__ import annotations

from enum import Enum

PROBE_S = 1.0  # most answers come sooner: a busy connection is never probed, a held one once a second
# A failover takes 2 to 3 s, so an earlier verdict would find the old table; and a node has 2 s for the probe,
# which covers a pause of its process and a retransmission of TCP.
SILENT_S = 3.0
LOOK_S = 0.25  # how late both may be seen; a look costs at most 50 us
# Between two looks: then it was this process that stood still, and answers may wait to be read.
STOOD_S = 1.0
# What a former owner gets to answer what it was sent before a table named another one: a live one does within
# milliseconds (stored, or asks for that table), one that stands still never will. A try that is given up too
# soon costs one repeat at the new owner, and no more than one for each change of owners.
FORMER_S = 1.0


class Step(Enum):
    """What to do about a connection now."""

    NOTHING = "nothing"
    PROBE = "probe"
    ASK_OTHERS = "ask others"


class Silence:
    """How long a node has said nothing that should have. Pure: the clock is the caller's."""

    def __init__(self) -> None:
        self.look_at = 0.0
        self.silent = False  # until it says something, though nobody waits for it any more
        self._looked = self._since = 0.0
        self._probed = False
        self._next = 0.0

    def look(self, now: float, *, waits: bool, heard: bool) -> Step:
        """The step to take; at most one each LOOK_S.

        Args:
            now: seconds.
            waits: whether there is a request that the node would answer at once, or soon.
            heard: whether anything came from it since the last look.
        """
        stood = now - self._looked > STOOD_S
        self._looked, self.look_at = now, now + LOOK_S
        self.silent = self.silent and not heard
        if heard or stood or not waits:
            self._since, self._probed = now, False
            return self._probe_silent(now)
        if not self._probed:
            if now - self._since < PROBE_S:
                return Step.NOTHING
            self._probed, self._next = True, self._since + SILENT_S
            return Step.PROBE
        if now < self._next:
            return Step.NOTHING
        self._next = now + SILENT_S  # the failover may come later, or the next node be silent as well
        self.silent = True
        return Step.ASK_OTHERS

    def _probe_silent(self, now: float) -> Step:
        """Who sends nothing to a silent node would not hear that it goes on."""
        if not self.silent or now < self._next:
            return Step.NOTHING
        self._next = now + SILENT_S
        return Step.PROBE
