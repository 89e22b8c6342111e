"""`ringfence.aio` against the program itself: tasks that are cancelled, many of them, and loops that end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ringfence
import ringfence.aio
from tests.fakes.client_topic import SCHEMA, ids_of, rows
from tests.harness.processes import NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLLOWERS = 48  # more than the event loop has worker threads on any machine: min(32, processors + 4)
END_S = 30.0

FOLLOWS = """
import asyncio
import ringfence.aio

async def main():
    client = ringfence.aio.connect({address!r})
    print("follows", flush=True)
    async for batch in client.read("quiet", follow=True):
        print(batch.num_rows)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        with ringfence.connect(running.address, timeout_s=30) as client:
            client.create_topic("quiet", schema=SCHEMA)
        yield running


def filled(node: NodeProcess, topic: str, count: int) -> None:
    """A topic of one partition with ids 0 .. count - 1."""
    with ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic(topic, schema=SCHEMA)
        with client.producer(topic) as producer:
            producer.send(rows(0, count))


def test_rows_that_come_after_a_time_out_are_read(node: NodeProcess) -> None:
    async def main() -> list[int]:
        got: list[int] = []
        async with ringfence.aio.connect(node.address, timeout_s=30) as client:
            await client.create_topic("late", schema=SCHEMA)
            async with client.producer("late") as producer:
                reader = client.read("late", follow=True)
                for number in range(3):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(reader), 0.2)
                    await producer.send(rows(number, 1))
                    batch = await asyncio.wait_for(anext(reader), END_S)
                    got += batch.column("id").to_pylist()
        return got

    assert asyncio.run(main()) == [0, 1, 2]


def test_steps_that_are_cancelled_at_any_moment_lose_and_double_nothing(node: NodeProcess) -> None:
    filled(node, "cancelled", 3000)
    moments = random.Random(7)

    async def main() -> tuple[list[int], int]:
        got: list[int] = []
        cancelled = 0
        async with ringfence.aio.connect(node.address, timeout_s=30) as client:
            reader = client.read("cancelled", batch_rows=10)
            while True:
                step = asyncio.ensure_future(anext(reader))
                if moments.random() < 0.5:
                    await asyncio.sleep(moments.choice((0, 0.0002, 0.001)))
                    cancelled += step.cancel()
                try:
                    got += (await step).column("id").to_pylist()
                except asyncio.CancelledError:
                    pass
                except StopAsyncIteration:
                    return got, cancelled
                if reader.positions():
                    assert [each.offset for each in reader.positions()] == [len(got)]

    got, cancelled = asyncio.run(main())
    assert got == list(range(3000))
    assert cancelled > 20


def test_a_reader_of_several_tasks_gives_each_row_to_one_of_them(node: NodeProcess) -> None:
    filled(node, "shared", 2000)

    async def main() -> list[int]:
        got: list[int] = []
        async with ringfence.aio.connect(node.address, timeout_s=30) as client:
            reader = client.read("shared", batch_rows=50)

            async def drain() -> None:
                async for batch in reader:
                    got.extend(batch.column("id").to_pylist())

            async with asyncio.timeout(END_S):
                await asyncio.gather(*(drain() for _ in range(3)))
        return got

    assert sorted(asyncio.run(main())) == list(range(2000))


def test_many_followers_keep_nobody_else_waiting_and_end_when_cancelled(node: NodeProcess) -> None:
    # In a process of its own: what this is about left threads behind that nobody could end.
    code = f"""
import asyncio
import ringfence.aio

async def main():
    async with ringfence.aio.connect({node.address!r}) as client:
        async def follow():
            async for batch in client.read("quiet", follow=True):
                print(batch.num_rows)
        tasks = [asyncio.create_task(follow()) for _ in range({FOLLOWERS})]
        await asyncio.sleep(1)
        print((await asyncio.wait_for(client.status(), {END_S})).state)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

asyncio.run(main())
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=2 * END_S, check=False
    )
    assert (told.returncode, told.stdout) == (0, "serving\n"), told.stderr


def test_an_interrupt_ends_a_program_that_follows(node: NodeProcess) -> None:
    code = FOLLOWS.format(address=node.address)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "follows\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=END_S)
    finally:
        process.kill()
        process.communicate()
    assert complaint.splitlines()[-1] == "KeyboardInterrupt"


def test_an_opening_that_was_cancelled_does_not_fence_the_next_one(node: NodeProcess) -> None:
    filled(node, "named", 1)

    async def main() -> None:
        for number in range(20):
            # A new client each time: its first opening has more to ask, and may come behind the second.
            async with ringfence.aio.connect(node.address, timeout_s=30) as client:
                opening = asyncio.ensure_future(client.producer("named", name="loader").__aenter__())
                await asyncio.sleep(0.0005 * (number % 4))
                opening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await opening
                async with client.producer("named", name="loader") as producer:
                    await producer.send(rows(number + 1, 1))

    asyncio.run(main())
    with ringfence.connect(node.address, timeout_s=30) as client:
        assert ids_of(client, "named") == list(range(21))
