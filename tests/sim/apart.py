"""A seed in a process of its own, forked behind the cluster's birth: all that it leaves ends with it.

What killed machines leave behind (tasks, their frames, all that hangs on them) is a third of a long seed's
time when it is collected; a process that ends collects nothing.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from types import ModuleType
from typing import Final, NoReturn

import msgspec

from ringfence.native import _node
from tests.sim import content, simulation
from tests.sim.mix import Plan
from tests.sim.simulation import Result
from tests.sim.violation import ViolationError

TOLD_BYTES_MAX: Final = 1 << 28
"""Of one seed; a story of 60 virtual seconds takes 10 MB."""
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


@dataclass(frozen=True, slots=True)
class Child:
    plan: Plan
    pid: int
    pipe: int

    def result(self) -> Result:
        """Waits for its end. ChildProcessError when it ended without a result."""
        with os.fdopen(self.pipe, "rb") as pipe:
            body = pipe.read(TOLD_BYTES_MAX)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            why = "it was not over when its processor's time was: something goes round for ever"
            return Result(self.plan.seed, "", 0, 0, 0, {}, ViolationError("I13", why), ())
        if status != 0:
            raise ChildProcessError(f"seed {self.plan.seed}: its process ended with wait status {status}")
        told = msgspec.msgpack.decode(body, type=Told)
        broken = None if told.broken is None else ViolationError(*told.broken)
        return Result(
            self.plan.seed,
            told.trace,
            told.events,
            told.acknowledged,
            told.elections,
            told.counts,
            broken,
            told.story,
        )


def run(plan: Plan, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    """As `simulation.run`, with nothing left behind."""
    return begun(plan, native, is_told=is_told).result()


def each(plans: Iterable[Plan], at_once: int) -> Iterator[tuple[Plan, Result]]:
    """The plans with their results, in order; as many as said are under way."""
    under_way: deque[Child] = deque()
    for plan in plans:
        under_way.append(begun(plan))
        if len(under_way) >= at_once:
            yield under_way[0].plan, under_way.popleft().result()
    while under_way:
        yield under_way[0].plan, under_way.popleft().result()


def begun(plan: Plan, native: ModuleType = _node, *, is_told: bool = False) -> Child:
    _warm(plan.machines, plan.level)
    play = partial(simulation.run, plan, native, is_told=is_told, is_last=True)
    return forked(plan, play, CPU_S_MIN + CPU_S_EACH * plan.seconds)


def forked(plan: Plan, play: partial[Result], cpu_s: int) -> Child:
    """`play` in a process that ends after so many seconds of a processor, whatever it does."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        faulthandler.register(signal.SIGXCPU, chain=True)  # where it was
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        _played(play, theirs)
    os.close(theirs)
    return Child(plan, pid, ours)


@cache
def _warm(machines: int, level: int) -> None:
    """What is imported, compiled and kept by the first run of a process is there for every child."""
    simulation.run(replace(Plan.drawn(1, seconds=1), machines=machines, level=level))
    content.warm()
    gc.freeze()  # nobody touches what is shared with the children


def _played(play: partial[Result], pipe: int) -> NoReturn:
    """In the child: only the pipe tells what came of it."""
    status = 1
    try:
        result = play()
        broken = result.violation
        told = Told(
            result.trace,
            result.events,
            result.acknowledged,
            result.elections,
            result.counts,
            None if broken is None else (broken.invariant, str(broken).removeprefix(f"{broken.invariant}: ")),
            result.story,
        )
        with os.fdopen(pipe, "wb") as out:
            out.write(msgspec.msgpack.encode(told))
        status = 0
    except BaseException:  # noqa: BLE001 - the parent hears of it by the status
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)
