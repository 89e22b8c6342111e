"""A cluster of modelled nodes and consumers under a leader's coordinator: faults first, then a quiet end.

The log, the coordinator, JOIN, rules of gates, words and reports are the product's. Modelled are logs of
gates, messages (lost, late, repeated), nodes that lag, crash and start, leaders that change or are paused,
and consumers that are killed, paused, restarted under their names, and that leave.

- CG3, CG7, CG8, CR3: as in `tests.search.cohorts`, over splits, merges, prunes and seeks.
- P14: no member is removed that a node reported to this leader within its grace.
- CH8: a partition leaves a member that stays only for one that has two less.
- After the quiet end every row is read, or its loss was told; each partition has a member; members differ by
one partition; and no entry is written any more. Then leaders change: 0 slices move (F20, F25).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ringfence.control.model.cohort_commands import (
    CreateCohort,
    Registration,
    Removal,
    RemovalReason,
    RemoveMembers,
)
from ringfence.control.model.cohorts import CohortMode, MemberSession, StartKind
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.state_machines.cohorts import members
from ringfence.control.state_machines.cohorts.members import Join, evaluate_join
from tests.fakes.cohort_cluster import ROUND_MS, CohortCluster
from tests.fakes.cohort_log import DAY_MS, instance
from tests.fakes.cohort_nodes import Process, note_outcomes
from tests.fakes.layout_log import LayoutLog

QUIET_ROUNDS = 600
NAMES = ["a", "b", "c", "d"]


class CohortWorld(CohortCluster):
    """One run: consumers, faults, and the quiet end."""

    # ---- consumers --------------------------------------------------------------------------------------

    def _ask(self, process: Process) -> None:
        """A process that is not attached joins at any node; so does one whose node is away."""
        is_attached = process.node is not None and self.nodes_by_id[process.node].is_up
        if process.is_final or not process.is_running or self.now_ms - process.asked_ms < 1_000:
            return
        if is_attached and process.session in self._sessions(process.cohort):
            return
        process.asked_ms = self.now_ms
        up = [node for node in self.nodes_by_id.values() if node.is_up]
        if not up:
            return
        node = self.draw.choice(up)
        join = Join(
            self.topic,
            process.cohort,
            process.name,
            self._mode(process.cohort),
            process.instance,
            process.after,
        )
        decision = evaluate_join(self.view(node), join, node.here.node)
        if isinstance(decision, CreateCohort):
            self.proposals.append((decision, None))
        elif isinstance(decision, Registration):
            node.joins.add(decision, process.ticket, self.now_ms)
        else:
            outcome = members.JoinOutcome(process.ticket, decision)
            note_outcomes((outcome,), self.processes, node.here.node)

    def _sessions(self, cohort: str) -> set[MemberSession]:
        number = self.state.cohort_names.get(self.topic, {}).get(cohort)
        return set() if number is None else {one.session for one in self.members(number).values()}

    @staticmethod
    def _mode(cohort: str) -> CohortMode:
        return {"s": CohortMode.STREAM, "c": CohortMode.CHECKPOINT}[cohort]

    def _join_entries(self) -> None:
        for number, node in self.nodes_by_id.items():
            made = node.joins.due(self.now_ms) if node.is_up else None
            if made is not None:
                self.proposals.append((made, number))

    def new_process(self, name: str | None = None, cohort: str | None = None) -> None:
        """A consumer starts, under a name that may be in use by one that is gone."""
        ticket = len(self.processes) + 1
        name = name or self.draw.choice(NAMES)
        cohort = cohort or self.draw.choice(["s", "s", "c"])
        if any(one.is_up and (one.cohort, one.name) == (cohort, name) for one in self.processes.values()):
            return
        self.processes[ticket] = Process(cohort, name, instance(f"{name}-{ticket}"), ticket)

    # ---- faults -----------------------------------------------------------------------------------------

    def step(self) -> None:
        draw = self.draw
        choices: list[tuple[Any, float]] = [
            (self._write, 4),
            (self.new_process, 1),
            (self._kill, 0.4),
            (self._pause, 0.4),
            (self._leave, 0.3),
            (self._split_or_merge, 0.5),
            (self._prune_oldest, 0.4 if self.prunes else 0),
            (self._seek, 0.2),
            (self._elect, 0.1),
            (self._sleep, 0.1),
            (self._crash, 0.15),
            (self._start, 1),
            (self.tick, 8),
        ]
        draw.choices([one for one, _ in choices], [weight for _, weight in choices])[0]()

    def tick(self) -> None:
        """A quarter of a second: nodes apply, act and tell; messages arrive; the leader runs a round."""
        self.now_ms += ROUND_MS
        self.time_ms += ROUND_MS
        if self.now_ms % 1_000 == 0:
            self._tell_sessions()
        for process in self.processes.values():
            self._ask(process)
        self._join_entries()
        for node in self.nodes_by_id.values():
            count = self.at if self.quiet or self.draw.random() < 0.2 else self.draw.choice([0, 1, 3])
            while count and node.is_up and node.applied < self.at:
                self._apply(node)
                count -= 1
            if node.is_up:
                self._act(node)
        for _ in range(len(self.messages) if self.quiet else self.draw.randrange(1 + len(self.messages))):
            self._deliver()
        if self.is_led:
            self._lead()
        for _ in range(len(self.proposals)):
            if self.quiet or self.draw.random() < 0.8:
                self._propose_next()

    def _write(self) -> None:
        part = self.draw.choice(self.active)
        self.rows[part.partition] += self.draw.choice([1, 3, 20])

    def _running(self) -> list[Process]:
        return [one for one in self.processes.values() if one.is_up]

    def _kill(self) -> None:
        if self._running():
            self.draw.choice(self._running()).is_up = False

    def _pause(self) -> None:
        if self._running():
            process = self.draw.choice(self._running())
            process.is_paused = not process.is_paused

    def _leave(self) -> None:
        running = [one for one in self._running() if one.session and one.is_running]
        if not running:
            return
        process = self.draw.choice(running)
        number = self.state.cohort_names.get(self.topic, {}).get(process.cohort)
        if number is not None:
            item = Removal(number, process.name, process.session, RemovalReason.LEFT)
            self.proposals.append((RemoveMembers(members=(item,)), None))
        process.is_up = False

    def _split_or_merge(self) -> None:
        if len(self.now.layout.partitions) > 16:
            return
        place = self.draw.randrange(len(self.active))
        part = self.active[place]
        if self.draw.random() < 0.35 and place + 1 < len(self.active):
            self._change(self.merge(part, self.active[place + 1]))
        elif part.slots.lo < part.slots.hi:
            self._change(self.split(part))

    def _change(self, command: PrepareLayout) -> None:
        """A whole layout change; sources end where their rows end."""
        self.must(command)
        self.must(self.hold())
        made = LayoutLog.commit(self)
        ends = tuple(
            (source, LogEnd(self.epoch(source), self.rows[source] + 1, self.rows[source], 7))
            for source in self.transition.sources
        )
        self.must(replace(made, ends=ends))
        self.must(self.opened())

    def _prune_oldest(self) -> None:
        """A day passes: what is oldest goes, drained or not."""
        oldest = [part for part in self.now.layout.partitions if not part.is_active and not part.parents]
        if not oldest:
            return
        self.time_ms += DAY_MS
        for number in [*self.state.transitions]:
            self.do(self.finalize(number))
        self.do(self.prune(self.draw.choice(oldest).partition))

    def _seek(self) -> None:
        if self.state.cohorts:
            number = self.draw.choice([*self.state.cohorts])
            self.do(self.seek(number, self.draw.choice([StartKind.EARLIEST, StartKind.LATEST])))

    def _sleep(self) -> None:
        """The leader is paused: nobody hears of time but clocks."""
        self.now_ms += self.draw.choice([4_000, 60_000])

    def _crash(self) -> None:
        up = [node for node in self.nodes_by_id.values() if node.is_up]
        if len(up) == len(self.nodes_by_id):
            self.draw.choice(up).is_up = False

    def _start(self) -> None:
        for node in self.nodes_by_id.values():
            if not node.is_up:
                self.must(self.restart(int(node.here.node)))
                node.restart(self.at)
                self._open_logs(node)

    # ---- the end ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults; two consumers of each cohort run."""
        self.quiet = True
        self._start()
        for process in self.processes.values():
            process.is_paused = False
        for cohort in ("s", "c"):
            for name in ("x", "y"):
                ticket = len(self.processes) + 1
                self.processes[ticket] = Process(cohort, name, instance(f"{name}-{ticket}"), ticket)
        for rounds in (QUIET_ROUNDS // 3, QUIET_ROUNDS):
            for _ in range(rounds):
                self.tick()
            if rounds < QUIET_ROUNDS:
                self._pause_over_a_join()
        self._check_end()

    def _pause_over_a_join(self) -> None:
        """A consumer is silent for less than its grace, and another one joins meanwhile."""
        process = self.draw.choice([one for one in self._running() if one.session and not one.is_final])
        process.is_paused = True
        for _ in range(20):
            self.tick()
        self.new_process("z", process.cohort)
        for _ in range(12):
            self.tick()
        process.is_paused = False

    def _check_end(self) -> None:
        for number, cohort in self.state.cohorts.items():
            assert not cohort.resetting, f"CD6: {cohort.name!r} waits for {cohort.resetting}"
            loads = [len(one.slice) for one in self.members(number).values()]
            assert max(loads) - min(loads) <= 1, f"not within one: {loads}"
            held = {part for one in self.members(number).values() for part in one.slice}
            assert {part.partition for part in self.active} <= held, "a partition is unassigned"
            for partition in self.now.layout.by_id():
                left = self._left(int(number), int(cohort.incarnation), int(partition))
                assert not left, f"CH6: rows {sorted(left)[:5]} of {partition} are given to nobody"
        index = self.at
        for _ in range(80):
            self.tick()
        assert self.at == index, f"P31: {self.at - index} entries of idle members"

    def change_leaders(self, count: int) -> int:
        """Leaders change, each for some seconds; the number of partitions that moved."""
        before = {number: self.slices(number) for number in self.state.cohorts}
        generations = {number: cohort.generation for number, cohort in self.state.cohorts.items()}
        for _ in range(count):
            self._elect()
            for _ in range(self.draw.choice([2, 20, 80])):
                self.tick()
        after = {number: self.slices(number) for number in self.state.cohorts}
        assert generations == {number: one.generation for number, one in self.state.cohorts.items()}
        return sum(
            len({*share} ^ {*after[number].get(name, ())})
            for number, slices in before.items()
            for name, share in slices.items()
        )


def run(seed: int, steps: int = 400, *, prunes: bool = True) -> CohortWorld:
    """One run; AssertionError names what is wrong."""
    world = CohortWorld(seed, prunes=prunes)
    for _ in range(steps):
        world.step()
    world.settle()
    world.agree()
    return world
