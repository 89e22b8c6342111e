"""Seeds in processes of their own, forked after the cluster's birth: all that they leave ends with them.

What killed machines leave (tasks, their frames, all that hangs on them) is a third of a long seed's time when
it is collected; a process that ends collects nothing. A process runs some seeds: each of the parent's pages
that it touches is copied once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import math
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import ModuleType
from typing import Final, NoReturn

import msgspec

from ringfence.native import _node
from tests.sim import simulation
from tests.sim.checks.violation import ViolationError
from tests.sim.clients import content
from tests.sim.faults.plan import Plan, with_layouts
from tests.sim.simulation import Result

HEAD_BYTES: Final = 8
"""Before each result: its size."""
SECONDS_EACH: Final = 100
"""Virtual seconds of one process: its memory grows by 2 MB with each of them, and ends with it."""
CPU_S_MIN: Final = 30
CPU_S_EACH: Final = 6
"""Of a processor, for each virtual second; one takes 0.07 to 0.3 of them, one with faults some times that.
Whoever needs more goes round and round, perhaps in native code where nothing else would end it."""


class Told(msgspec.Struct):
    """A result as it comes through a pipe."""

    trace: str
    events: int
    acknowledged: int
    elections: int
    counts: dict[str, int]
    broken: tuple[str, str] | None
    story: tuple[str, ...]
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Play:
    """One plan, what runs it, and how many seconds of a processor it may take."""

    plan: Plan
    run: Callable[[], Result]
    cpu_s: int


@dataclass(frozen=True, slots=True)
class Child:
    """A process that runs plays, one after the other; it sends each result when it has it."""

    plays: tuple[Play, ...]
    pid: int
    pipe: int

    def result(self) -> Result:
        """The result of the only play. ChildProcessError when the process ended without one."""
        (result,) = self.results()
        return result

    def results(self) -> Generator[Result, None, None]:
        """Waits for each. The process ends when they are closed before the last."""
        told, has_ended = 0, False
        try:
            with os.fdopen(self.pipe, "rb") as pipe:
                while told < len(self.plays) and (head := pipe.read(HEAD_BYTES)):
                    yield _result(self.plays[told].plan, pipe.read(int.from_bytes(head)))
                    told += 1
            has_ended = True
        finally:
            if not has_ended:
                os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        if told == len(self.plays):
            return
        seed = self.plays[told].plan.seed
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            raise ChildProcessError(f"seed {seed}: its process ended with wait status {status}")
        why = "it was not over when its processor's time was: something goes round for ever"
        yield Result(seed, "", 0, 0, 0, {}, ViolationError("I13", why), ())
        if told + 1 < len(self.plays):
            yield from forked(self.plays[told + 1 :]).results()

    def stop(self) -> None:
        """End it, whatever it has done; only before its results are asked for."""
        os.close(self.pipe)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _result(plan: Plan, body: bytes) -> Result:
    told = msgspec.msgpack.decode(body, type=Told)
    return Result(
        plan.seed,
        told.trace,
        told.events,
        told.acknowledged,
        told.elections,
        told.counts,
        None if told.broken is None else ViolationError(*told.broken),
        told.story,
        told.cpu_s,
    )


def run(plan: Plan, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    """As `simulation.run`, with nothing left behind."""
    return forked([_play(plan, native, is_told=is_told)]).result()


def each(plans: Iterable[Plan], at_once: int) -> Generator[tuple[Plan, Result], None, None]:
    """The plans with their results, in order; as many processes as said are under way."""
    left = iter(plans)
    under_way = deque[tuple[list[Plan], Child]]()
    try:
        while True:
            while len(under_way) < at_once and (some := _some(left)):
                under_way.append((some, forked([_play(plan) for plan in some])))
            if not under_way:
                return
            some, child = under_way.popleft()
            with contextlib.closing(child.results()) as results:
                yield from zip(some, results, strict=True)
    finally:
        for _, child in under_way:
            child.stop()


def _some(plans: Iterator[Plan]) -> list[Plan]:
    """The next plans, as many as one process may run."""
    some: list[Plan] = []
    seconds = 0
    for plan in plans:
        some.append(plan)
        seconds += plan.seconds
        if seconds + plan.seconds > SECONDS_EACH:
            break
    return some


def _play(plan: Plan, native: ModuleType = _node, *, is_told: bool = False) -> Play:
    _warm(plan.machines, plan.level, plan.layouts)
    play = partial(simulation.run, plan, native, is_told=is_told, is_last=True)
    return Play(plan, play, CPU_S_MIN + CPU_S_EACH * plan.seconds)


def forked(plays: Sequence[Play]) -> Child:
    """A process for these plays. One of them that takes more of a processor than it may ends it."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        faulthandler.register(signal.SIGXCPU, chain=True)  # where it was
        _play_all(plays, theirs)
    os.close(theirs)
    return Child(tuple(plays), pid, ours)


@cache
def _warm(machines: int, level: int, has_layouts: bool) -> None:
    """What is imported, compiled and kept by the first run of a process is there for every child."""
    plan = Plan.drawn(1, seconds=1)
    plan = with_layouts(plan) if has_layouts else plan
    simulation.run(replace(plan, machines=machines, level=level))
    content.warm()
    gc.freeze()  # nobody touches what is shared with the children


def _play_all(plays: Sequence[Play], pipe: int) -> NoReturn:
    """In the child: only the pipe tells what came of it."""
    status = 1
    try:
        with os.fdopen(pipe, "wb") as out:
            spent, (_, most_s) = 0.0, resource.getrlimit(resource.RLIMIT_CPU)
            for play in plays:
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent) + play.cpu_s, most_s))
                result = play.run()
                before, spent = spent, time.process_time()
                body = msgspec.msgpack.encode(_told(result, spent - before))
                out.write(len(body).to_bytes(HEAD_BYTES) + body)
                out.flush()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent hears of it by the status
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def _told(result: Result, cpu_s: float) -> Told:
    broken = result.violation
    return Told(
        result.trace,
        result.events,
        result.acknowledged,
        result.elections,
        result.counts,
        None if broken is None else (broken.invariant, str(broken).removeprefix(f"{broken.invariant}: ")),
        result.story,
        cpu_s,
    )
