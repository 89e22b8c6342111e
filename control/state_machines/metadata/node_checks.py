"""Check the description of a node, one question a function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfence.control.model import names
from ringfence.control.model.ids import UUID_BYTES, NodeId
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.state_machines.metadata.config import LABELS_MAX, WEIGHT_MAX
from ringfence.control.state_machines.metadata.refusals import invalid
from ringfence.native.wire import NAME_BYTES_MAX, Code

# Addresses of one node and kind: every table carries them.
ADDRESSES_MAX = 16


def member_fault(state: MetadataState, node: int) -> Refused | None:
    """The refusal of a command about a node that is no member; None if it is one."""
    if node in state.nodes:
        return None
    removed = state.removed.get(NodeId(node))
    if removed is not None:
        return invalid(f"node {node} was removed by entry {removed.removed}")
    return invalid(f"node {node} is not a member; members are [{listed(sorted(state.nodes), 20)}]")


def addresses_fault(*kinds: Iterable[str] | None) -> Refused | None:
    for addresses in kinds:
        listed = list(addresses or ())
        if len(listed) > ADDRESSES_MAX:
            return invalid(f"{len(listed)} addresses: at most {ADDRESSES_MAX}")
        for address in listed:
            if not 0 < len(address.encode("utf-8", errors="replace")) <= NAME_BYTES_MAX:
                return invalid(f"address {address[:80]!r}: 1 to {NAME_BYTES_MAX} bytes")
    return None


def store_fault(store: bytes, what: str = "store") -> Refused | None:
    if len(store) == UUID_BYTES and any(store):
        return None
    return invalid(f"{what} id {store[:UUID_BYTES].hex()!r}: {UUID_BYTES} bytes, not all zero")


def level_fault(state: MetadataState, level: int) -> Refused | None:
    """The refusal of a program that knows no level as high as the cluster's; None if it does."""
    if level >= state.level:
        return None
    message = (
        f"the cluster has level {state.level}, the program knows up to level {level}; use a newer one "
        "(`ringfence cluster versions` shows those of the other nodes)"
    )
    return Refused(code=Code.UNSUPPORTED_VERSION, message=message)


def settings_fault(
    zone: str | None = None, weight: int | None = None, labels: Mapping[str, str] | None = None
) -> Refused | None:
    """The refusal of settings that are out of range. None stands for a setting that stays, the empty zone for
    no zone.
    """
    if weight is not None and not 1 <= weight <= WEIGHT_MAX:
        return invalid(
            f"weight={weight} is outside of 1 to {WEIGHT_MAX}; 100 is a usual node; drain a node to empty it"
        )
    if labels is not None and len(labels) > LABELS_MAX:
        return invalid(f"{len(labels)} labels: at most {LABELS_MAX}")
    texts = [(zone, "zone")] if zone else []
    texts += [(text, "label") for pair in (labels or {}).items() for text in pair if text]
    try:
        for text, what in texts:
            names.check_label(text, what)
        for name in labels or {}:
            names.check_label(name, "name of a label")
    except ValueError as error:
        return invalid(str(error))
    return None


def witness_fault(state: MetadataState, witness: int) -> Refused | None:
    """The refusal of a witness. Programs below level 1 do not know the field: their state would have another
    hash.
    """
    if state.level < 1:
        return invalid(
            f"witnesses need level 1, the cluster has level {state.level}; finalize its upgrade first"
        )
    if not 0 < witness < 1 << 63:
        return invalid(f"witness {witness} is outside of 1..2^63-1")
    return None
