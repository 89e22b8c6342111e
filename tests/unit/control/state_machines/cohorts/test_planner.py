"""The planner: covered, within one, as few moves as possible, and the same wherever it runs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from ringfence.control.model.ids import PartitionId
from ringfence.control.state_machines.cohorts.planner import plan

ROUNDS = 400


def parts(count: int) -> list[tuple[int, PartitionId]]:
    return [(number * 100, PartitionId(number)) for number in range(count)]


def judge(
    order: list[tuple[int, PartitionId]],
    members: list[str],
    held: dict[PartitionId, str],
    connected: set[str] | None,
    after: dict[PartitionId, str],
) -> None:
    """The rules of a plan, without a line of the planner."""
    here = [name for name in members if connected is None or name in connected]
    ids = {number for _, number in order}
    for number, name in held.items():
        if number in ids and name in members and name not in here:
            assert after.get(number) == name, "what a member in grace has stays with it"
    if not here:
        return
    assert set(after) == ids, "a partition is unassigned"
    load = Counter(dict.fromkeys(here, 0))
    load.update(name for name in after.values() if name in here)
    assert max(load.values()) - min(load.values()) <= 1, f"not within one: {load}"
    own = {number: name for number, name in held.items() if number in ids and name in here}
    counts = sorted((sum(name == one for name in own.values()) for one in here), reverse=True)
    least, larger = divmod(sum(load.values()), len(here))
    needed = sum(max(0, count - least - (place < larger)) for place, count in enumerate(counts))
    moved = sum(after[number] != name for number, name in own.items())
    assert moved == needed, f"{moved} partitions moved, {needed} would do"


def test_the_first_plan_is_round_robin_in_the_order_of_slots_and_names() -> None:
    first = plan(parts(7), ["b", "a", "c"], {})
    assert [first[PartitionId(number)] for number in range(7)] == list("abcabca")


def test_random_histories_are_covered_within_one_minimal_and_idempotent() -> None:
    draw = random.Random(7)
    moved_to_parents = 0
    for _ in range(ROUNDS):
        order = [(draw.randrange(65_536), PartitionId(number)) for number in range(draw.randrange(1, 40))]
        members = [f"m{number}" for number in range(draw.randrange(9))]
        held, connected = dict[PartitionId, str](), None
        parents: dict[PartitionId, tuple[PartitionId, ...]] = {}
        for _ in range(6):
            after = plan(order, members, held, connected, parents)
            judge(order, members, held, connected, after)
            assert plan(order[::-1], members[::-1], after, connected, parents) == after, "a second plan moves"
            moved_to_parents += sum(
                number not in held and name in {held.get(one) for one in parents.get(number, ())}
                for number, name in after.items()
            )
            held = after
            act = draw.randrange(5)
            if act == 0:
                members = sorted({*members, f"n{draw.randrange(1_000)}"})
            elif act == 1 and members:
                members = [name for name in members if name != draw.choice(members)]
            elif act == 2:
                source, new = draw.choice(order), PartitionId(max(number for _, number in order) + 1)
                order = [*order, (source[0], new), (source[0] + 1, PartitionId(new + 1))]
                parents |= dict.fromkeys((new, PartitionId(new + 1)), (source[1],))
            elif act == 3 and len(order) > 1:
                order.remove(draw.choice(order))
            connected = None if draw.random() < 0.6 else {name for name in members if draw.random() < 0.8}
    assert moved_to_parents > 100, "children go to members of their parents"


def test_a_join_moves_what_the_newcomer_gets_and_no_more() -> None:
    held = plan(parts(12), ["a", "b", "c"], {})
    after = plan(parts(12), ["a", "b", "c", "d"], held)
    moved = {number for number, name in after.items() if held[number] != name}
    assert len(moved) == 3
    assert {after[number] for number in moved} == {"d"}


def test_a_member_that_is_gone_gives_its_partitions_and_nobody_else_does() -> None:
    held = plan(parts(12), ["a", "b", "c"], {})
    after = plan(parts(12), ["a", "c"], held)
    assert all(after[number] == name for number, name in held.items() if name != "b")


def test_more_members_than_partitions_stand_by() -> None:
    assert plan(parts(2), ["a", "b", "c"], {}) == {0: "a", 1: "b"}
    assert plan([], ["a"], {}) == {}
    assert plan(parts(2), [], {PartitionId(0): "a"}) == {}


def test_a_member_in_grace_keeps_its_partitions_and_gets_none() -> None:
    held = plan(parts(9), ["a", "b", "c"], {})
    after = plan(parts(12), ["a", "b", "c"], held, {"a", "b"})
    assert all(after[number] == "c" for number, name in held.items() if name == "c")
    assert Counter(after.values()) == {"a": 5, "b": 4, "c": 3}
    assert plan(parts(9), ["a"], {PartitionId(0): "a"}, set()) == {0: "a"}, "nobody is connected"


@pytest.mark.parametrize("seed", ["0", "1", "77"])
def test_no_order_of_a_hash_is_in_a_plan(seed: str) -> None:
    """Another process with other hashes of strings, which is what another node is."""
    script = (
        "from ringfence.control.state_machines.cohorts.planner import plan\n"
        "names = {f'member-{n}' for n in range(40)}\n"
        "parts = [(n % 7, n) for n in range(300)]\n"
        "first = plan(parts, names, {})\n"
        "names.discard('member-5'); names.add('z')\n"
        "print(sorted(plan(parts, names, first, names - {'member-7'}, {9: (3, 4)}).items()))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_environment(seed)
    )
    here: dict[str, object] = {}
    names = {f"member-{number}" for number in range(40)}
    order = [(number % 7, PartitionId(number)) for number in range(300)]
    first = plan(order, names, {})
    names.discard("member-5")
    names.add("z")
    parents = {PartitionId(9): (PartitionId(3), PartitionId(4))}
    here["plan"] = sorted(plan(order, names, first, names - {"member-7"}, parents).items())
    assert made.stdout.strip() == str(here["plan"])


def _environment(seed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": seed}
