"""The cluster's level in the metadata: at level 0 every byte is that of a program without levels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.model.cohort_commands import CohortCommand
from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.commands import Command, OpenNamedProducer, RaiseLevel
from ringfence.control.model.ids import NodeId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.layout_commands import LayoutCommand
from ringfence.control.model.results import Done, Refused
from ringfence.control.model.state import (
    ADDED_BY_LEVEL_1,
    ADDED_BY_LEVEL_2,
    ADDED_BY_LEVEL_3,
    EMPTY,
    FORMAT_OF_LEVEL_0,
    STATE_FORMAT,
    MetadataState,
    canonical_bytes,
    decode_state,
)
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.raft.level_gate import (
    COMMANDS,
    COMMANDS_OF_LEVEL_2,
    COMMANDS_OF_LEVEL_3,
    older_fault,
)
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.node_orders import SetLevel, between
from ringfence.control.store import identity
from ringfence.control.store import write_and_read_snapshot as snapshots
from ringfence.control.store.directory import open_directory
from ringfence.control.store.journal import LogPosition
from ringfence.control.store.write_and_read_snapshot import Snapshot
from ringfence.native.errors import NewerFormatError
from ringfence.native.wire import LEVEL_NEWEST, Code
from tests.fakes.metadata_commands import INIT, NODE, STORE, cluster, create, entry, register, restart
from tests.upgrade import forms

HERE = Replica(node=NODE, store=STORE)


def begun(level: int) -> MetadataState:
    state, _ = apply(EMPTY, entry(1, replace(INIT, level=level)))
    state, _ = apply(state, entry(2, create("public/default/t")))
    return state


def test_a_history_begins_at_the_level_of_the_program_that_began_it() -> None:
    assert begun(LEVEL_NEWEST).level == LEVEL_NEWEST
    # As a program without levels wrote it.
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(INIT))
    del plain["level"]
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=type(INIT))
    first, _ = apply(EMPTY, entry(1, old))
    assert first.level == 0


def test_at_level_0_bytes_and_hashes_do_not_have_what_later_levels_added() -> None:
    fields = msgspec.msgpack.decode(canonical_bytes(begun(0)))
    whole = set(MetadataState.__struct_fields__)
    assert whole - set(fields) == ADDED_BY_LEVEL_1 | ADDED_BY_LEVEL_2 | ADDED_BY_LEVEL_3
    left_out = [whole - set(msgspec.msgpack.decode(canonical_bytes(begun(level)))) for level in (1, 2, 3)]
    assert left_out == [ADDED_BY_LEVEL_2 | ADDED_BY_LEVEL_3, ADDED_BY_LEVEL_3, set()]
    old, new = begun(0), begun(1)
    assert decode_state(canonical_bytes(old)) == old
    assert decode_state(canonical_bytes(new)) == new
    assert StateDigests().of(old) != StateDigests().of(new)


@pytest.mark.parametrize(("level", "expected"), [(0, FORMAT_OF_LEVEL_0), (1, 8), (2, 9), (3, STATE_FORMAT)])
def test_a_snapshot_has_the_format_of_its_level(level: int, expected: int, tmp_path: Path) -> None:
    state = begun(level)
    snapshots.write(tmp_path / "s", Snapshot(LogPosition(2, 1), state))
    written = (tmp_path / "s").read_bytes()
    assert int.from_bytes(written[6:8], "little") == expected
    assert snapshots.read(tmp_path / "s", history=INIT.history).state == state


def test_a_raised_level_is_the_first_order_that_a_node_gets() -> None:
    phases = between(EMPTY, begun(LEVEL_NEWEST), HERE)
    assert phases[0] == (SetLevel(level=LEVEL_NEWEST),)
    assert len(phases) > 1
    assert not any(isinstance(order, SetLevel) for phase in between(EMPTY, begun(0), HERE) for order in phase)
    assert between(begun(0), replace(begun(0), level=1), HERE)[0] == (SetLevel(level=1),)


# ---- raising it ---------------------------------------------------------------------------------------


def test_a_level_is_raised_for_the_members_that_were_asked_and_never_goes_back() -> None:
    state = cluster(2)
    members = tuple(state.nodes)
    same, result = apply(state, entry(90, RaiseLevel(level=1, nodes=(NodeId(1),))))
    assert isinstance(result, Refused)
    assert result.code == Code.TOO_OLD
    assert "1, 2" in result.message
    assert same is state
    raised, result = apply(state, entry(91, RaiseLevel(level=1, nodes=members)))
    assert (raised.level, result) == (1, Done())
    for level in (0, 1):
        again, result = apply(raised, entry(92, RaiseLevel(level=level, nodes=())))
        assert (again, result) == (raised, Done())


def test_programs_below_the_level_neither_join_nor_start() -> None:
    raised = replace(cluster(2), level=1)
    for command in (register(9), replace(restart(raised, 2), level=0)):
        same, result = apply(raised, entry(90, command))
        assert isinstance(result, Refused)
        assert (result.code, same) == (Code.UNSUPPORTED_VERSION, raised)
        assert "level 1, the program knows up to level 0" in result.message
    for newer in (replace(register(9), level=1), replace(restart(raised, 2), level=1)):
        assert not isinstance(apply(raised, entry(90, newer))[1], Refused)


# ---- the data directory -------------------------------------------------------------------------------


def test_a_new_directory_is_one_that_programs_without_levels_refuse(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    text = (tmp_path / "store.toml").read_text()
    assert f"format = 2\nlevel = {LEVEL_NEWEST}\nraised = {LEVEL_NEWEST}\n" in text
    assert identity.read(tmp_path / "store.toml").level == LEVEL_NEWEST


def test_a_directory_of_level_0_is_as_programs_without_levels_wrote_it_until_it_is_raised(
    tmp_path: Path,
) -> None:
    open_directory(tmp_path).close()
    path = tmp_path / "store.toml"
    identity.write(path, identity.read(path)._replace(level=0, cluster_level=0))
    assert "format = 1\ncluster" in path.read_text()
    directory = open_directory(tmp_path)
    try:
        assert directory.identity.level == 0
        before = path.read_bytes()
        directory.raise_level(0)
        assert path.read_bytes() == before
        directory.raise_level(1)
        directory.raise_level(0)
        assert directory.identity.level == identity.read(path).level == 1
    finally:
        directory.close()


def test_a_directory_above_the_program_is_refused_naming_both_levels(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    path = tmp_path / "store.toml"
    text = path.read_text().replace(f"\nlevel = {LEVEL_NEWEST}", f"\nlevel = {LEVEL_NEWEST + 1}")
    path.write_text(text)
    with pytest.raises(NewerFormatError, match=f"level {LEVEL_NEWEST + 1}, .* level {LEVEL_NEWEST}"):
        open_directory(tmp_path)
    assert path.read_text() == text


# ---- what is not proposed below level 1 -----------------------------------------------------------------


def test_a_command_that_older_programs_do_not_know_waits_for_the_level() -> None:
    newer = [kind for kind in get_args(Command) if kind.__struct_config__.tag not in COMMANDS]
    assert newer, "level 1 has commands of its own"
    for kind in newer:
        fault = older_fault(cluster(1), kind(**dict.fromkeys(kind.__struct_fields__)))
        assert fault is not None
        assert fault.code == Code.NOT_SUPPORTED
        assert "cluster finalize" in fault.message
    assert older_fault(cluster(1), RaiseLevel(level=1, nodes=())) is None


def test_commands_of_layout_changes_wait_for_the_level_that_this_program_raises() -> None:
    kinds = [kind for kind in get_args(Command) if kind.__struct_config__.tag in COMMANDS_OF_LEVEL_2]
    assert len(kinds) == len(COMMANDS_OF_LEVEL_2) == len(get_args(LayoutCommand))
    for kind in kinds:
        waits_for(LAYOUT_LEVEL, kind)
    assert LEVEL_NEWEST >= LAYOUT_LEVEL


def waits_for(needed: int, kind: Any) -> None:
    """The command is refused below the level that it needs, and taken at it."""
    command = kind(**dict.fromkeys(kind.__struct_fields__))
    for level in range(needed):
        fault = older_fault(replace(cluster(1), level=level), command)
        assert fault is not None
        assert fault.code == Code.NOT_SUPPORTED
    assert older_fault(replace(cluster(1), level=needed), command) is None


def test_commands_of_cohorts_wait_for_a_level_of_their_own() -> None:
    kinds = [kind for kind in get_args(Command) if kind.__struct_config__.tag in COMMANDS_OF_LEVEL_3]
    assert len(kinds) == len(COMMANDS_OF_LEVEL_3) == len(get_args(CohortCommand))
    for kind in kinds:
        waits_for(COHORT_LEVEL, kind)
    assert LEVEL_NEWEST == COHORT_LEVEL


def test_a_name_that_older_programs_may_judge_otherwise_waits_for_the_level() -> None:
    strange, plain = "\u0378", "läder"
    topic = TopicId(2)
    fault = older_fault(cluster(1), OpenNamedProducer(topic=topic, name=strange))
    assert fault is not None
    assert "finalize" in fault.message
    assert older_fault(cluster(1), OpenNamedProducer(topic=topic, name=plain)) is None
    assert older_fault(replace(cluster(1), level=1), OpenNamedProducer(topic=topic, name=strange)) is None
    assert older_fault(cluster(1), register(2, zone=strange)) is not None


def test_level_0_has_the_fields_of_its_time_in_states_heartbeats_and_messages() -> None:
    """A field more changes the state's hash on half of the nodes, or a heartbeat that older ones refuse."""
    told = json.loads((Path(forms.__file__).parent / "data" / "forms.json").read_text())
    now = forms.forms()
    # Reports of loads and envelopes have no names in their bytes; older programs pass over one more load.
    assert now.pop("LoadReport") == [*told.pop("Told"), "level"]
    assert len(now.pop("Envelope")) == len(told.pop("Envelope"))
    assert now == told
