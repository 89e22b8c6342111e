"""`ringfence compact` killed by -9 and run again: each row in one file, which the manifest names."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ringfence
from ringfence.compact import files
from ringfence.compaction.manifest import MANIFEST, read
from tests.conftest import ROOT
from tests.fakes.client_topic import SCHEMA, rows
from tests.harness.processes import PROGRAM, NodeProcess, until

PARTITIONS = 2
STEPS_MAX = 60
"""A file takes ten steps at most, and what a killed run left two or three more."""
KILLS = 8
SEED = 20_261_125


def topic_of(node: NodeProcess, name: str, count: int) -> None:
    with ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic(name, schema=SCHEMA, key=["id"], partitions=PARTITIONS)
        with client.producer(name) as producer:
            producer.send(rows(0, count))


def compacting(
    node: NodeProcess, topic: str, out: Path, a_file: int, program: tuple[str, ...] = (str(PROGRAM),)
) -> subprocess.Popen[str]:
    asked = ("compact", topic, str(out), "--rows-per-file", str(a_file), "--address", node.address, "--json")
    return subprocess.Popen(
        [*program, *asked], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode, output


def until_more(out: Path, run: subprocess.Popen[str]) -> None:
    before = len(list(out.glob("*/*.parquet")))
    until(lambda: len(list(out.glob("*/*.parquet"))) > before or run.poll() is not None)


def counted(out: Path) -> int:
    """Rows of the files that the manifest names, which are sound whenever a run was killed.

    The last one may lack its name, and has its hidden one: the next run gives it.
    """
    if not (out / MANIFEST).exists():
        assert not list(out.glob("*/*.parquet")), "a file that nothing names"
        return 0
    manifest = read(out / MANIFEST)
    named = [Path(path) for path in files(out)]
    assert set(out.glob("*/*.parquet")) <= set(named), "a file that the manifest does not name"
    next_of = Counter[int]()
    for path, piece in zip(named, manifest.files, strict=True):
        assert piece.first == next_of[piece.partition], "no row is left out, none comes twice"
        next_of[piece.partition] = piece.last
        hidden = path.with_name(f".{path.name}.part")
        assert path.exists() != hidden.exists() or path != named[-1]
        here = path if path.exists() else hidden
        assert pq.ParquetFile(here).metadata.num_rows == piece.last - piece.first
    assert dict(next_of) == {one: at.offset for one, at in manifest.file_ends.items() if at.offset}
    return sum(next_of.values())


def check_whole(out: Path, count: int) -> None:
    """Every row once, and nothing but what the manifest names."""
    assert counted(out) == count
    found = pa.concat_tables([pq.read_table(path) for path in files(out)])["id"].to_pylist()
    assert sorted(found) == list(range(count))
    left = {path for path in out.rglob("*") if path.is_file()}
    assert left == {out / MANIFEST, *map(Path, files(out))}, "stray files"


def test_a_run_killed_before_any_of_its_steps_is_gone_on_with(node: NodeProcess, tmp_path: Path) -> None:
    """Each run dies one step further in what is left by the one before."""
    topic_of(node, "steps", 4_000)
    out, done, kept = tmp_path / "out", 0, list[int]()
    for step in range(STEPS_MAX):
        program = (sys.executable, "-m", "tests.system.cli.dying", str(step))
        # Files of another size each time: what a killed run left has no name that the next one takes.
        code, output = ended(compacting(node, "steps", out, 250 - step, program))
        kept.append(counted(out))
        assert kept == sorted(kept), "what the manifest names stays"
        if code == 0:
            done = json.loads(output)["rows"]
            break
    assert step >= 12, "it dies at each step of one file, and of the next"
    assert kept[-1] - done == kept[-2], "what killed runs did is not done again"
    check_whole(out, 4_000)


def test_a_run_killed_at_any_moment_is_gone_on_with(node: NodeProcess, tmp_path: Path) -> None:
    """From outside, while it reads, writes or names: 400 files, so a run takes longer than it lives."""
    topic_of(node, "moments", 20_000)
    out, dice, killed = tmp_path / "out", random.Random(SEED), 0
    for _ in range(KILLS):
        run = compacting(node, "moments", out, 50)
        try:
            until_more(out, run)
            time.sleep(dice.uniform(0, 0.05))
        finally:
            run.kill()
        killed += ended(run)[0] == -signal.SIGKILL
        counted(out)
    assert killed == KILLS, "a run ended before it was killed"
    assert 0 < counted(out) < 20_000
    with ringfence.connect(node.address, timeout_s=30) as client, client.producer("moments") as producer:
        producer.send(rows(20_000, 100))
    assert ended(compacting(node, "moments", out, 60))[0] == 0
    check_whole(out, 20_100)
    assert json.loads(ended(compacting(node, "moments", out, 50))[1])["rows"] == 0
