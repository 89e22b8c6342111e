"""The blocks of the documents run as they are printed, but for addresses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.control.cli.admin import ADDRESS_VARIABLE as ADMIN_ADDRESS
from tests.harness.admin_http import with_http
from tests.harness.processes import PROGRAM, NodeProcess, free_port

ROOT = Path(__file__).resolve().parents[3]
STAYS = re.compile(r"ringfence (serve|dev|top|read .*--follow)\b(?!.*(--demo|--count|&))")
"""Until Ctrl-C."""


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```(?:{language})\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", 1), ("docs/python.md", 8)], ids=["readme", "python.md"]
)
def test_python_of_the_documents_runs(page: str, count: int, tmp_path: Path) -> None:
    chosen = [block for block in blocks(page) if "ringfence.spark" not in block]
    assert len(chosen) == count
    with NodeProcess(tmp_path / "data") as node:
        program = "\n".join(chosen).replace("tcp://127.0.0.1:7411", node.address)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_the_commands_and_the_program_of_the_page_about_layouts_run(tmp_path: Path) -> None:
    [commands], [program] = blocks("docs/layouts.md", "sh"), blocks("docs/layouts.md")
    node = NodeProcess(tmp_path / "data")
    http = with_http(node)
    with node:
        environment = {
            **os.environ,
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "RINGFENCE_ADDRESS": node.address,
            ADMIN_ADDRESS: http,
        }
        done = subprocess.run(
            ["bash", "-ec", commands],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 new partitions" in done.stdout
        assert done.stdout.count("SEALED") == 1, "the tree after the first repartition"
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("tcp://127.0.0.1:7411", node.address)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "3 new partitions" in ran.stdout
    assert ran.stdout.count("slots ") == 3


def test_every_command_of_a_pasted_block_but_the_last_ends() -> None:
    names = ("README.md", "docs/operations.md", "docs/layouts.md")
    pages = [block for name in names for block in blocks(name, "sh|bash")]
    assert any("ringfence dev" in block for block in pages)
    for block in pages:
        commands = [line.partition("#")[0].strip() for line in block.splitlines()]
        for command in [command for command in commands if command][:-1]:
            assert not STAYS.search(command), f"{command}: what stands behind it is never run"


def test_the_cluster_by_hand_runs_to_its_end(tmp_path: Path) -> None:
    [block] = [block for block in blocks("docs/operations.md", "sh") if "ringfence serve" in block]
    for port in ("7412", "7421", "7511"):
        assert f":{port}" in block
        block = block.replace(f":{port}", f":{free_port()}")
    environment = {
        **os.environ,
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "RINGFENCE_LISTEN": f"tcp://127.0.0.1:{free_port()}",
        "RINGFENCE_BUDGET_BYTES": "160MiB",
    }
    with subprocess.Popen(
        ["bash", "-c", block],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said, _ = shell.communicate(timeout=120)
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):  # the former: `dev` ends its nodes
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(shell.pid, number)
                    shell.wait(20)
    assert shell.returncode == 0, said
    assert re.search(r"^node +life", said, re.MULTILINE), said
    assert "leads term" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
