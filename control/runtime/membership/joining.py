"""Bind the control address, and register a new store as a node of a cluster."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from ringfence.control.runtime.process.addresses import advertised
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.wait_log import WaitLog
from ringfence.control.runtime.raft.level_gate import check_level
from ringfence.control.runtime.rpc import messages
from ringfence.control.store.directory import DataDirectory, JoiningDirectory
from ringfence.control.transport.hub import ForeignClusterError, Hub, NoAnswerError
from ringfence.native.errors import ConfigError, StorageError
from ringfence.native.wire import LEVEL_NEWEST, Code

_LOG = structlog.get_logger("ringfence.cluster")
CONTROL_DEFAULT: Final = "tcp://127.0.0.1:0"
# Timeout of one join request, in seconds; the node repeats it until the cluster answers.
JOIN_TIMEOUT_S: Final = 2.0
# Refusals after which a joining node tries again; all others end the join.
RETRIED_CODES: Final = frozenset(
    {
        Code.TOO_FEW_REPLICAS,
        Code.UNKNOWN_OUTCOME,
        Code.STOPPING,
        Code.OVERLOADED,
        Code.INTERNAL,
        Code.DISK_FULL,
    }
)


async def join(
    hub: Hub, settings: Settings, directory: JoiningDirectory
) -> tuple[DataDirectory, dict[int, tuple[str, ...]]]:
    """Ask the cluster to register this store as a node, without a time limit.

    Returns the directory with its identity, and the control addresses of the members by node.

    Raises:
        ConfigError: the control address cannot be bound.
        StorageError: the cluster refuses the store.
    """
    control = bind(hub, settings.control or CONTROL_DEFAULT)
    call = messages.Join(
        store=directory.store,
        control=control,
        addresses=settings.advertise,
        zone=settings.zone,
        weight=settings.weight or 0,
        body_bytes=settings.body_bytes_max,
        stored_bytes=settings.stored_bytes_max,
        level=LEVEL_NEWEST,
    )
    wait_log = WaitLog()
    while True:
        joined = await _ask_to_join(hub, settings, call, wait_log)
        if joined is not None:
            break
    _LOG.info("joined", node=joined.node, cluster=joined.cluster.hex())
    check_level(joined.level, f"the cluster {joined.cluster.hex()}")
    settled = directory.settle(
        cluster=joined.cluster, history=joined.history, node=joined.node, level=joined.level
    )
    return settled, dict(joined.peers)


async def _ask_to_join(
    hub: Hub, settings: Settings, call: messages.Join, wait_log: WaitLog
) -> messages.Joined | None:
    for address in settings.join:
        try:
            reply = messages.decode_reply(await hub.ask(address, messages.encode(call), JOIN_TIMEOUT_S))
        except NoAnswerError as error:
            wait_log.log("waiting to join", str(error))
            continue
        except ForeignClusterError as error:
            raise StorageError(str(error)) from error
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"{address} sent no valid answer to a join request: {error}; name a control address"
            ) from error
        if isinstance(reply, messages.Joined):
            return reply
        if isinstance(reply, messages.Refusal):
            if Code(reply.code) not in RETRIED_CODES:
                raise StorageError(f"the cluster at {address} refuses this node: {reply.message}")
            wait_log.log("waiting to join", reply.message)
            await asyncio.sleep(max(reply.retry_after_ms, 200) / 1_000)
    return None


def bind(hub: Hub, address: str) -> tuple[str, ...]:
    """Listen at a control address; return the addresses for other nodes.

    Raises:
        ConfigError: the address cannot be bound.
    """
    return advertised((hub.bind(address),))


def bind_again(hub: Hub, settings: Settings, before: tuple[str, ...]) -> None:
    """Bind the configured control address; else the last one; else, to join, any port of loopback."""
    configured = settings.control
    if configured is None and before:
        try:
            bind(hub, before[0])
        except ConfigError as error:
            _LOG.warning("control address changed", before=before[0], why=str(error))
        else:
            return
    if configured is not None or before or settings.join:
        bind(hub, configured or CONTROL_DEFAULT)
