"""What programs below level 1 do not know or would judge otherwise: not proposed while the cluster has one.

They judge a name by `str.isprintable` of their own Python; this program does by a table that is fixed. A name
that this Python does not print might be refused by them when the entry is applied: their states would differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringfence.control.model.commands import Command, CreateToken, OpenNamedProducer, RestartNode
from ringfence.control.model.node_commands import RegisterNode, SetNode
from ringfence.control.model.results import Refused
from ringfence.control.model.scopes import BeginScope
from ringfence.control.model.state import MetadataState
from ringfence.native.wire import Code

COMMANDS: Final = frozenset(
    {
        "abort_change",
        "add_schema",
        "add_to_ring",
        "amend_moves",
        "begin_scope",
        "cancel_rebalance",
        "clean_change",
        "commit_change",
        "commit_scope",
        "confirm_dropped",
        "confirm_left",
        "confirm_opened",
        "confirm_published",
        "create_token",
        "create_topic",
        "delete_topic",
        "expire_scope",
        "fail_move",
        "fail_node",
        "fail_over",
        "finish_rebalance",
        "force_owner",
        "form_ring",
        "hold_change",
        "init_cluster",
        "open_named_producer",
        "open_producers",
        "open_session",
        "pause_rebalance",
        "prepare_change",
        "purge_topic",
        "recover_node",
        "register_node",
        "release_kept",
        "remove_from_ring",
        "remove_node",
        "restart_node",
        "resume_rebalance",
        "revoke_token",
        "set_addresses",
        "set_config",
        "set_node",
        "start_rebalance",
        "truncate_topic",
        "raise_level",
    }
)
"""Tags of the commands of level 0, and the one that ends it. Never added to."""
NEWER_MESSAGE: Final = "finalize the upgrade first (`ringfence cluster finalize`)"


def older_fault(state: MetadataState, command: Command) -> Refused | None:
    """Why `command` waits for level 1; None where it need not."""
    if state.level > 0:
        return None
    tag = type(command).__struct_config__.tag
    if tag not in COMMANDS:
        message = f"`{tag}`: nodes of an older program do not know it; {NEWER_MESSAGE}"
        return Refused(code=Code.NOT_SUPPORTED, message=message)
    strange = next((name for name in _names(command) if not name.isprintable()), None)
    if strange is None:
        return None
    message = f"name {strange[:80]!r}: nodes of an older program may not take it; {NEWER_MESSAGE}"
    return Refused(code=Code.INVALID_ARGUMENT, message=message)


def _names(command: Command) -> Iterator[str]:
    match command:
        case OpenNamedProducer(name=name) | CreateToken(name=name) | BeginScope(name=name):
            yield name
        case RegisterNode() | RestartNode() | SetNode():
            yield command.zone or ""
            for label, text in (command.labels or {}).items():
                yield label
                yield text
