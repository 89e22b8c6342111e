"""Define the errors: one class for each possible reaction of a caller."""

from __future__ import annotations

from ringfence.control.consensus.messages import Message


class ConsensusError(Exception):
    """Base of all refusals. No part of the event has an effect, except a newer term in a message."""


class ProposalDroppedError(ConsensusError):
    """The proposal was dropped, and will never be committed. Propose again, at the leader if one is known."""


class ReadDroppedError(ConsensusError):
    """The read was dropped. Ask again, at the leader if one is known."""


class LocalMessageError(ConsensusError):
    """A message that only a node itself may create came from outside. Drop it, distrust the sender."""

    def __init__(self, message: Message) -> None:
        super().__init__(
            f"{message.type.name} from {message.sender} is a local message: it is never taken from outside"
        )
        self.message = message


class UnknownPeerError(ConsensusError):
    """The answer is from a node outside the configuration: removed, or not added yet. Drop the answer."""

    def __init__(self, message: Message) -> None:
        super().__init__(
            f"{message.type.name} from {message.sender}, which is not in the configuration; dropped"
        )
        self.message = message


class ChangeError(ConsensusError):
    """The change of the configuration is not possible, for `reason`. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CompactedError(ConsensusError):
    """The requested entries are compacted. Send or read the snapshot instead."""

    def __init__(self, index: int, first: int) -> None:
        super().__init__(f"entry {index} is compacted, the log begins at {first}; use the snapshot")
        self.index, self.first = index, first


class LogLostError(ConsensusError):
    """A leader relies on entries that this node has acknowledged and lost.

    The store was wiped or restored. Stop the node, remove it from the configuration, and let it join again.
    """

    def __init__(self, commit: int, last: int) -> None:
        super().__init__(
            f"the leader commits up to {commit}, but this log ends at {last}: acknowledged entries are gone; "
            "remove this node and let it join again"
        )
        self.commit, self.last = commit, last


class MalformedMessageError(ConsensusError):
    """The bytes are no message of this protocol. Drop them, distrust the sender."""


class OptionsError(ConsensusError, ValueError):
    """The options contradict each other; the text names them."""
