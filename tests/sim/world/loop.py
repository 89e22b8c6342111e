"""An asyncio loop of one life of one machine, in virtual time: what ships runs on it, unchanged.

Callbacks run in the order in which they were asked for; timers lie on the agenda; work for threads runs at a
drawn time, and its result comes at a later one, so that a crash may come in between. A loop whose machine
died
never runs again: its tasks are as gone as those of a killed process.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tests.sim.checks.violation import ViolationError
from tests.sim.world import current

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine

CALLBACKS_MAX: Final = 100_000
"""In one turn; more never comes to rest."""
THREAD_US: Final = (20, 200)
"""A call handed to a thread, and its way back."""


class Handle(Struct, eq=False):
    """What asyncio knows as a handle, as far as tasks, futures and time-outs look at it.

    A struct, because there are ten thousand of them in each virtual second.
    """

    callback: Any
    """None: it was cancelled."""
    args: tuple[Any, ...]
    context: Context | None

    def cancel(self) -> None:
        """A timer that was cancelled is passed over when it is due."""
        self.callback, self.args = None, ()


class Loop(asyncio.AbstractEventLoop):
    """Only what the product uses of a loop; asking for more fails aloud."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.time = machine.clock.mono_s  # type: ignore[method-assign]
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.dead = False
        self.readers: dict[int, Callable[[], None]] = {}
        self._ready: deque[Handle] = deque()
        self._due = False
        self._busy_us: dict[int, int] = {}  # single threads, until when
        self.tasks: set[asyncio.Task[Any]] = set()

    # ---- what asyncio asks of a loop ----

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.dead

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        if not self._due:
            self.wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, context)
        machine = self.machine
        delay_us = machine.clock.us_until(when)
        machine.agenda.after(max(0, delay_us), partial(self._timer, handle))
        return handle

    def _timer(self, handle: Handle) -> None:
        if not self.dead and handle.callback is not None:
            self._ready.append(handle)
            self.run()

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        # Who dies does not complain about tasks that were left.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not self.dead and not task.cancelled() and isinstance(task.exception(), AssertionError):
            # Somebody may wait for it; a broken assertion is for nobody to catch.
            self.machine.defect(f"task {task.get_name()} ended", task.exception())

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self.readers[fd] = partial(callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Begin when the thread is free; the result comes back a moment after the work was done."""
        future = self.create_future()
        machine, now = self.machine, self.machine.agenda.now_us
        at = max(now, self._busy_us.get(id(executor), 0) if executor is not None else 0)
        at += machine.disk_delay_us(*THREAD_US)
        if executor is not None:
            self._busy_us[id(executor)] = at
        machine.later(at - now, partial(self._work, future, partial(func, *args)), self)
        return future

    def _work(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        try:
            result, error = self.machine.within(work), None
        except Exception as caught:  # noqa: BLE001 - it is the awaiting task's
            result, error = None, caught
        if not self.dead:
            delay_us = self.machine.disk_delay_us(5, 50)
            self.machine.later(delay_us, partial(self._done, future, result, error), self)

    def _done(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.machine.defect(context.get("message", ""), context.get("exception"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # ---- the simulator's side ----

    def ready_from(self, descriptor: int) -> None:
        """Something can be read there."""
        reader = self.readers.get(descriptor)
        if reader is not None:
            self.call_soon(reader)

    def wake(self) -> None:
        if not self._due and not self.dead:
            self._due = True
            self.machine.agenda.after(0, self._woken)

    def _woken(self) -> None:
        self._due = False
        self.run()

    def run(self) -> None:
        """Everything that is ready, unless the machine stands still."""
        machine = self.machine
        if self.dead or machine.paused:
            return
        was_due, self._due = self._due, True  # nobody wakes who is awake
        ready, left = self._ready, CALLBACKS_MAX
        current.enter(machine)
        _set_running_loop(self)
        try:
            while ready and not self.dead:
                if not left:
                    raise ViolationError("I13", f"{machine.name} never comes to rest")
                left -= 1
                handle = ready.popleft()
                callback, context = handle.callback, handle.context
                if callback is None:
                    continue
                try:
                    if context is None:
                        callback(*handle.args)
                    else:
                        context.run(callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does; a death inside of a call is one
                    self._failed(error)
        finally:
            _set_running_loop(None)
            current.leave()
            self._due = was_due
        if machine.files.dead:
            machine.after_turn()

    def _failed(self, error: BaseException) -> None:
        self.call_exception_handler({"message": "an exception in a callback", "exception": error})

    def kill(self) -> None:
        """The process is gone."""
        self.dead = True
        self._ready.clear()
        self.readers.clear()
