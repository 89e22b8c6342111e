"""How a background task ended."""

from __future__ import annotations

import asyncio

import pytest

from ringfence.control.runtime.process.tasks import failure_of


class EndOfProcess(BaseException):
    pass


def test_the_error_of_a_task_is_told_and_what_ends_a_process_is_raised() -> None:
    async def returns() -> None:
        return

    async def raises(error: BaseException) -> None:
        raise error

    async def run() -> None:
        known, ends = OSError("no disk"), EndOfProcess()
        cancelled = asyncio.create_task(asyncio.sleep(60))
        cancelled.cancel()
        tasks = [asyncio.create_task(one) for one in (returns(), raises(known), raises(ends))]
        await asyncio.wait([*tasks, cancelled])
        assert failure_of(cancelled) is None
        assert [failure_of(task) for task in tasks[:2]] == [None, known]
        with pytest.raises(EndOfProcess):
            failure_of(tasks[2])

    asyncio.run(run())
