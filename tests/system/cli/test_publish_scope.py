"""`publish --scope`: files as one transaction, by a number that may be repeated."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import NodeProcess, cli


class Desk:
    """Who publishes files of the topic `sales` as scope `nightly`."""

    def __init__(self, node: NodeProcess, folder: Path, topic: str) -> None:
        self._node, self._folder, self._topic = node, folder, topic

    def file(self, name: str, first: int, rows: int) -> str:
        path = self._folder / name
        pq.write_table(pa.table({"id": pa.array(range(first, first + rows), pa.int64())}), path)
        return str(path)

    def publish(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return cli("publish", self._topic, *arguments, address=self._node.address)

    def ids(self) -> list[int]:
        with ringfence.connect(self._node.address) as client:
            return sorted(row for batch in client.read(self._topic) for row in batch["id"].to_pylist())


def test_all_files_or_none_and_a_number_once(node: NodeProcess, tmp_path: Path) -> None:
    desk = Desk(node, tmp_path, "sales")
    files = desk.file("a.parquet", 0, 1_000), desk.file("b.parquet", 1_000, 500)
    numbered = ("--scope", "nightly", "--epoch")
    done = desk.publish(*files, "--create", "--partitions", "3", "--batch-rows", "300", *numbered, "7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sales: 1,500 rows (")
    assert desk.ids() == list(range(1_500))
    again = desk.publish(*files, *numbered, "7")
    assert (again.returncode, again.stdout) == (
        0,
        "sales: epoch 7 was committed before; nothing is stored again\n",
    )
    assert desk.ids() == list(range(1_500))

    other = tmp_path / "c.parquet"
    pq.write_table(pa.table({"no": ["such column"]}), other)
    late = desk.file("late.parquet", 1_500, 100)
    for last, code in ((str(other), Exit.REFUSED), (str(tmp_path / "none.parquet"), Exit.USAGE)):
        failed = desk.publish(late, last, *numbered, "8")
        assert failed.returncode == code
        assert "are on disk" not in failed.stderr
        assert desk.ids() == list(range(1_500)), "the first of the files was fine, but it is all or nothing"
    told = json.loads(desk.publish(late, *numbered, "9", "--json").stdout)
    assert (told["rows"], told["epoch"], told["already"]) == (100, 9, False)
    # Epoch 8 never came, and must not be taken for one that did.
    behind = desk.publish(late, *numbered, "8")
    assert behind.returncode == Exit.REFUSED
    assert "has committed epoch 9: it is unknown" in behind.stderr
    assert desk.ids() == list(range(1_600))


def test_a_scope_is_one_of_its_topic_and_goes_with_it(node: NodeProcess, tmp_path: Path) -> None:
    """The same name and number, as a schedule gives them to each of its tables, never passes rows over."""
    orders, items = Desk(node, tmp_path, "orders"), Desk(node, tmp_path, "items")
    file = orders.file("a.parquet", 0, 100)
    numbered = ("--create", "--scope", "nightly", "--epoch", "20261123")
    for desk in (orders, items):
        assert desk.publish(file, *numbered).stdout.split(" ")[1:3] == ["100", "rows"]
        assert "was committed before" in desk.publish(file, *numbered).stdout
        assert desk.ids() == list(range(100))
    # A topic of the same name that is made later has none of them.
    assert cli("topic", "delete", "items", "--yes", address=node.address).returncode == 0
    assert items.publish(file, *numbered).stdout.split(" ")[1:3] == ["100", "rows"]
    assert items.ids() == list(range(100))
    missing = Desk(node, tmp_path, "missing").publish(file, "--scope", "nightly")
    assert missing.returncode == Exit.REFUSED
    with ringfence.connect(node.address) as client:
        # Over several topics: one scope, wherever its rows go.
        with client.transaction("orders", scope="both", epoch=1) as both:
            both.send(pa.table({"id": [100]}))
            both.send(pa.table({"id": [100]}), topic="items")
        assert client.transaction("orders", scope="both", epoch=1).already
        assert not client.transaction("items", scope="both", epoch=1).already
        assert not client.transaction(scope="both", epoch=1).already


def test_without_a_number_each_run_is_a_transaction_of_its_own(node: NodeProcess, tmp_path: Path) -> None:
    desk = Desk(node, tmp_path, "plain")
    file = desk.file("a.parquet", 0, 10)
    for _ in range(2):
        assert desk.publish(file, "--create", "--scope", "loader").returncode == 0
    assert desk.ids() == sorted([*range(10), *range(10)])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--epoch", "1"), "--epoch needs --scope"),
        (("--scope", "s", "--producer", "p"), "exclude each other"),
        (("--scope", "s", "--epoch", "0"), "range"),
        (("--scope", ""), "scope"),
        (("--scope", "s" * 235), "scope"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    node: NodeProcess, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    desk = Desk(node, tmp_path, "never")
    done = desk.publish(desk.file("a.parquet", 0, 10), "--create", *options)
    assert done.returncode in {Exit.USAGE, Exit.REFUSED}
    assert why in done.stderr
