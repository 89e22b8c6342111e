"""The owner that a failover chooses: of equal replicas the node with the fewest partitions, then with the
least pressure.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignment_commands import CommitChange
from ringfence.control.model.reassignments import Proof
from ringfence.control.state_machines.reassignment.move_phases import advance, begin_phase
from ringfence.control.state_machines.rebalance.loads import Pressure
from tests.fakes.metadata_log import END, LESS, MetadataLog


def chosen(pressures: dict[int, Pressure], owned: dict[int, int], ends: dict[int, LogEnd]) -> int:
    lab = MetadataLog(3, replication=3)
    lab.must(lab.fail(1))
    [change] = lab.state.changes.values()
    proofs = tuple(
        Proof(place, ends.get(int(place.node), END)) for place in change.replicas if place.node != 1
    )
    observed = replace(begin_phase(change, 0), proofs=proofs)
    decision = advance(
        lab.state,
        change,
        observed,
        10_000_000,
        {NodeId(node): count for node, count in owned.items()},
        {NodeId(node): pressure for node, pressure in pressures.items()},
    )
    assert isinstance(decision.entry, CommitChange), decision
    return int(decision.entry.owner)


@pytest.mark.parametrize(
    ("pressures", "owned", "ends", "owner"),
    [
        ({}, {}, {}, 2),
        ({2: Pressure(bytes_s=9), 5: Pressure(bytes_s=4)}, {}, {}, 5),
        ({2: Pressure(bytes_s=4), 5: Pressure(bytes_s=9)}, {}, {}, 2),
        ({2: Pressure(lags=True), 5: Pressure(bytes_s=9)}, {}, {}, 5),
        ({2: Pressure(lags=True), 5: Pressure(is_full=True)}, {}, {}, 2),
        ({2: Pressure(bytes_s=9)}, {2: 1, 5: 2}, {}, 2),
        ({2: Pressure(is_full=True)}, {2: 9}, {5: LESS}, 2),
    ],
    ids=["no-figures", "load", "load-again", "lag", "disk", "numbers-first", "records-before-all"],
)
def test_ties_are_broken_by_disk_lag_and_load(
    pressures: dict[int, Pressure], owned: dict[int, int], ends: dict[int, LogEnd], owner: int
) -> None:
    """S6."""
    assert chosen(pressures, owned, ends) == owner
