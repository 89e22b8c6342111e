"""Questions to the control address of a node process."""

from __future__ import annotations

from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError


def list_nodes(control: str, timeout_s: float) -> messages.Nodes | None:
    """The cluster as this node sees it; None if it does not answer."""
    try:
        reply = messages.decode_reply(ask_address(control, messages.encode(messages.ListNodes()), timeout_s))
    except ConnectError:
        return None
    return reply if isinstance(reply, messages.Nodes) else None
