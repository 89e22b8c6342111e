"""What can go wrong, one class per thing that a caller can do about it."""

from __future__ import annotations

from ringfence.control.consensus.messages import Message


class ConsensusError(Exception):
    """Base of all that consensus refuses: it is not done, nor is a part of it.

    A newer term in the message is taken note of all the same.
    """


class ProposalDroppedError(ConsensusError):
    """The proposal was not taken and never will be. Propose again, at the leader if one is known."""


class ReadDroppedError(ConsensusError):
    """The read was not taken. Ask again, at the leader if one is known."""


class LocalMessageError(ConsensusError):
    """A message that only a node itself may make came from outside. Drop it, distrust the sender."""

    def __init__(self, message: Message) -> None:
        super().__init__(
            f"{message.type.name} from {message.sender} is a local message: it is never taken from outside"
        )
        self.message = message


class UnknownPeerError(ConsensusError):
    """An answer from a node outside of the configuration. Drop it: it was removed, or is not yet known."""

    def __init__(self, message: Message) -> None:
        super().__init__(
            f"{message.type.name} from {message.sender}, which is not in the configuration; dropped"
        )
        self.message = message


class ChangeError(ConsensusError):
    """A change of the configuration that is not possible; `reason` says why. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CompactedError(ConsensusError):
    """Entries that were asked for are compacted. Send or read the snapshot instead."""

    def __init__(self, index: int, first: int) -> None:
        super().__init__(f"entry {index} is compacted, the log begins at {first}; use the snapshot")
        self.index, self.first = index, first


class LogLostError(ConsensusError):
    """A leader counts on entries that this node once acknowledged and no longer has.

    Its store was wiped or restored. Stop the node, remove it from the configuration, and let it join anew.
    """

    def __init__(self, commit: int, last: int) -> None:
        super().__init__(
            f"the leader commits up to {commit}, but this log ends at {last}: acknowledged entries are gone; "
            "remove this node and let it join anew"
        )
        self.commit, self.last = commit, last


class MalformedMessageError(ConsensusError):
    """Bytes that are no message of this protocol. Drop them, distrust the sender."""


class OptionsError(ConsensusError, ValueError):
    """Options that contradict each other; the text names them."""
