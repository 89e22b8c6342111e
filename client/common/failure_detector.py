"""Detect nodes that do not respond: the process is stopped, the host is lost, or the network is cut.

ZeroMQ's heartbeat notices that after 10 to 30 s, but a cluster has another owner after 2 to 3 s. So a
connection that waits for an answer without receiving anything sends a probe (PROBE_S). Every node answers a
probe immediately, even if it delays other requests. A node that does not answer (SILENT_S) is silent.

A silent node alone moves no batch: it may be slow, and a second copy of its batches would make it slower. The
client only sends table requests, and others that any node can serve, to another node. A newer table with
another owner or owner epoch moves the requests that the former owner did not answer (FORMER_S). `failover.py`
does that.
"""

from __future__ import annotations

from enum import Enum

# Most answers arrive sooner: a busy connection is never probed, a delayed one once a second.
PROBE_S = 1.0
# A failover takes 2 to 3 s, so an earlier decision would find the old table. The node has 2 s for the probe,
# which covers a pause of its process and a retransmission of TCP.
SILENT_S = 3.0
# Delay with which both may be noticed; a look costs at most 50 us.
LOOK_S = 0.25
# A longer time between two looks means that this process was stopped, and answers may wait to be read.
STOOD_S = 1.0
# Time for a former owner to answer requests that it got before a table named another owner. A live owner
# answers within milliseconds (stored, or a redirect), a stopped one never. Ending a try too early costs one
# repeat at the new owner, at most one for each change of owners.
FORMER_S = 1.0


class DetectorStep(Enum):
    """What to do with a connection now."""

    NOTHING = "nothing"
    PROBE = "probe"
    ASK_OTHERS = "ask others"


class FailureDetector:
    """Measures how long a node has not answered. Pure: the caller passes the time."""

    def __init__(self) -> None:
        self.look_at = 0.0
        self.silent = False  # until a message arrives, even if no request is pending
        self._looked = self._since = 0.0
        self._probed = False
        self._next = 0.0

    def look(self, now: float, *, waits: bool, heard: bool) -> DetectorStep:
        """The step to take; called at most once each LOOK_S.

        Args:
            now: seconds.
            waits: whether a request is pending that the node should answer soon.
            heard: whether any message arrived since the last look.
        """
        stood = now - self._looked > STOOD_S
        self._looked, self.look_at = now, now + LOOK_S
        self.silent = self.silent and not heard
        if heard or stood or not waits:
            self._since, self._probed = now, False
            return self._probe_silent(now)
        if not self._probed:
            if now - self._since < PROBE_S:
                return DetectorStep.NOTHING
            self._probed, self._next = True, self._since + SILENT_S
            return DetectorStep.PROBE
        if now < self._next:
            return DetectorStep.NOTHING
        self._next = now + SILENT_S  # the failover may take longer, or the next node may be silent too
        self.silent = True
        return DetectorStep.ASK_OTHERS

    def _probe_silent(self, now: float) -> DetectorStep:
        """Probe a silent node again: without requests the client would not notice that it responds again."""
        if not self.silent or now < self._next:
            return DetectorStep.NOTHING
        self._next = now + SILENT_S
        return DetectorStep.PROBE
