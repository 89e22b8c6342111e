"""The examples of consumers with a database: each row is there once, though their processes are killed."""

from __future__ import annotations

import os
import random
import runpy
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from ringfence import ConsumerPlace
from tests.conftest import ROOT
from tests.fakes.cohort_node import CohortNode
from tests.harness.postgres import Postgres

ROWS = 10_000
NAMES = ("consumer_sqlite", "consumer_postgres")
SQLITE, POSTGRES = (ROOT / "examples" / f"{name}.py" for name in NAMES)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture
def node() -> Iterator[CohortNode]:
    with CohortNode() as running:
        yield running


def start(example: Path, node: CohortNode, database: str) -> subprocess.Popen[str]:
    """A process, after the grace period of the one before."""
    for name in list(node.members):
        node.evict(name)
    environment = {**os.environ, "RINGFENCE_ADDRESS": node.address, "TRIPS_DATABASE": database}
    return subprocess.Popen(
        [sys.executable, str(example)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return said


def kill_until_all_are_there(run: Callable[[], subprocess.Popen[str]], count: Callable[[], int]) -> int:
    """Start, kill in the middle, start again. Returns how often a process was killed with rows stored."""
    dice, kills = random.Random(7), 0
    for _ in range(40):
        process, before = run(), count()
        deadline = time.monotonic() + 60
        while count() <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(dice.random() * 0.02)
        process.kill()
        process.communicate(timeout=60)
        kills += 1
        if count() == ROWS or kills == 4:
            break
    return kills


def test_sqlite_has_each_row_once_though_the_reader_is_killed(node: CohortNode, tmp_path: Path) -> None:
    path = tmp_path / "trips.db"

    def count() -> int:
        if not path.exists():
            return 0
        with sqlite3.connect(path, timeout=10) as database:
            if not database.execute("select 1 from sqlite_master where name = 'trips'").fetchone():
                return 0
            return int(database.execute("select count(*) from trips").fetchone()[0])

    assert kill_until_all_are_there(lambda: start(SQLITE, node, str(path)), count) > 0
    assert f"{ROWS} rows, {ROWS} different ones" in finished(start(SQLITE, node, str(path)))


def test_postgres_has_each_row_once_though_the_reader_is_killed(node: CohortNode, postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as database:

        def count() -> int:
            if database.execute("select to_regclass('trips')").fetchone() == (None,):
                return 0
            found = database.execute("select count(*) from trips").fetchone()
            assert found is not None
            return int(found[0])

        assert kill_until_all_are_there(lambda: start(POSTGRES, node, postgres.dsn), count) > 0
        assert f"{ROWS} rows, {ROWS} different ones" in finished(start(POSTGRES, node, postgres.dsn))
        saved = database.execute("select partition, fencing_token from positions order by 1").fetchall()
        assert len(saved) == 4
        # A reader of before wakes up: its write is refused by its token, and the rows go with it.
        partition, token = saved[0]
        late = database.execute(
            "update positions set token = 'old' where partition = %s and fencing_token <= %s",
            (partition, token - 1),
        )
        assert late.rowcount == 0


# ---- two readers of one partition --------------------------------------------------------------------------


@pytest.fixture(params=NAMES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """What an example defines, with an empty database."""
    is_sqlite = request.param == "consumer_sqlite"
    place = str(tmp_path / "two.db") if is_sqlite else request.getfixturevalue("postgres").dsn
    if not is_sqlite:
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute("drop table if exists trips, positions")
    monkeypatch.setenv("TRIPS_DATABASE", place)
    # What `save` sees, not a copy of it: a test takes a condition away.
    names = runpy.run_path(str(SQLITE if is_sqlite else POSTGRES))["save"].__globals__
    yield names
    names["database"].close()


def save(store: dict[str, Any], hold: int, first: int, end: int) -> bool:
    """Rows that a reader was given under a hold. False: they were not saved."""
    batch = pa.table({"id": range(first, end), "fare": [0.0] * (end - first)}).to_batches()[0]
    try:
        store["save"](batch, ConsumerPlace(7, first, end, 1, hold))
    except store["NotSavedError"]:
        return False
    return True


def saved(store: dict[str, Any]) -> list[int]:
    return [row for (row,) in store["database"].execute("select id from trips order by id").fetchall()]


def test_rows_that_the_reader_before_saved_after_the_next_one_had_begun_are_not_saved_again(
    store: dict[str, Any],
) -> None:
    assert save(store, 5, 0, 3)
    assert store["load"](7) == "1:7:3:1:5"  # the next reader begins there, under hold 6
    assert save(store, 5, 3, 6)  # the one before had these rows in hand
    assert not save(store, 6, 3, 6)
    assert save(store, 6, 6, 9)
    assert saved(store) == [*range(9)]


def test_a_reader_that_lost_the_partition_saves_nothing_after_its_successor_has(
    store: dict[str, Any],
) -> None:
    assert save(store, 5, 0, 3)
    assert save(store, 6, 3, 6)
    assert not save(store, 5, 3, 6)
    assert not save(store, 5, 6, 9)
    assert saved(store) == [*range(6)]


def test_rows_behind_those_that_were_removed_are_saved(store: dict[str, Any]) -> None:
    assert save(store, 5, 0, 3)
    assert save(store, 5, 10, 12)
    assert saved(store) == [0, 1, 2, 10, 11]


@pytest.mark.parametrize("left", ["fencing_token", "next_row"])
def test_with_one_of_the_two_conditions_alone_rows_are_saved_twice_or_by_a_reader_of_before(
    store: dict[str, Any], left: str
) -> None:
    *lines, conditions = store["SAVE"].strip().splitlines()
    [kept] = [one for one in conditions.removeprefix("where ").split(" and ") if f"{left} <=" in one]
    store["SAVE"] = "\n".join([*lines, f"where {kept}"])
    assert save(store, 5, 0, 3)
    if left == "fencing_token":
        assert save(store, 5, 3, 6)
        assert save(store, 6, 3, 6)
        assert saved(store) == [0, 1, 2, 3, 3, 4, 4, 5, 5]
    else:
        assert save(store, 6, 3, 6)
        assert save(store, 5, 6, 9)
