"""Peers are optional: one that is missing is named with the way out, left out, and never faked."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.cluster.nodes import until
from benchmarks.engines import ENGINES
from benchmarks.peers import __main__ as peers_command
from benchmarks.peers import installed, process
from benchmarks.runner import run_workload
from benchmarks.senders.measured import Window
from benchmarks.workload import load_all


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any peer."""
    monkeypatch.setenv("BENCHMARKS_PEERS", str(tmp_path / "peers"))
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path / "bench"))
    monkeypatch.setattr("benchmarks.peers.installed.shutil.which", lambda *_, **__: None)
    return tmp_path


def test_a_missing_peer_is_named_with_the_way_out(nothing: Path) -> None:
    del nothing
    here, missing = installed.present()
    assert here == []
    assert [line.split(":")[:2] for line in missing] == [["missing", f" {name}"] for name in installed.PEERS]
    assert all(f"`{installed.INSTALL} " in line for line in missing)
    told = CliRunner().invoke(peers_command.main, ["status"])
    assert told.exit_code == 1
    assert told.output.splitlines() == missing


def test_jars_alone_are_no_kafka_and_an_old_java_is_none(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = nothing / "peers" / "kafka"
    with pytest.raises(installed.MissingError, match="missing: kafka: no java"):
        installed.require("kafka")
    monkeypatch.setattr("benchmarks.peers.installed.shutil.which", lambda *_, **__: "java")
    monkeypatch.setattr(installed, "_said", lambda _: 'openjdk version "11.0.2"\n')
    with pytest.raises(installed.MissingError, match=r"java is 'openjdk version \"11\.0\.2\"', 17 or newer"):
        installed.require("kafka")
    monkeypatch.setattr(installed, "_said", lambda _: 'openjdk version "21.0.2"\n')
    with pytest.raises(installed.MissingError, match=r"no kafka_2\.13-\*\.jar"):
        installed.require("kafka")
    jars.mkdir(parents=True)
    (jars / "kafka_2.13-4.3.1.jar").touch()
    assert installed.kafka_jars() == jars


def test_a_run_leaves_missing_peers_out_and_says_so(
    nothing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del nothing
    chosen, missing = command._engines(None, with_peers=True)
    assert not set(chosen) & set(installed.PEERS)
    assert "ours" in chosen
    assert len(missing) == len(installed.PEERS)
    assert capsys.readouterr().err.count("; left out") == len(installed.PEERS)
    assert command._engines("ours", with_peers=False) == (("ours",), [])


@pytest.mark.parametrize("name", [name for name in installed.PEERS if name in ENGINES])
def test_an_engine_that_is_missing_fails_instead_of_being_faked(nothing: Path, name: str) -> None:
    del nothing
    (contest,) = run_workload(
        load_all()["lineitem_1000"], [name], 1, quick=True, tell=lambda _: None, seconds=1
    )
    assert contest.failure is not None
    assert contest.failure.startswith(f"missing: {name}: ")
    assert contest.turns == []


def test_a_server_ends_with_the_block_that_it_serves(tmp_path: Path) -> None:
    port = process.free_port()
    server = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    seen: list[int] = []

    def interrupted() -> None:
        with process.serving([sys.executable, "-c", server], tmp_path / "log", port) as pid:
            seen.append(pid)
            assert Path(f"/proc/{pid}").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not Path(f"/proc/{seen[0]}").exists()
    assert not process.listens(port)


def test_a_run_that_is_told_to_end_ends_its_server_and_leaves_no_directory(tmp_path: Path) -> None:
    program = (
        "import sys, tempfile, time; from pathlib import Path\n"
        "from benchmarks.peers.process import free_port, serving, unwind_on_term\n"
        "unwind_on_term(); port = free_port()\n"
        "code = f'import socket, time; s = socket.create_server((\"127.0.0.1\", {port})); time.sleep(600)'\n"
        "with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:\n"
        "    with serving([sys.executable, '-c', code], Path(folder) / 'log', port) as pid:\n"
        "        print(pid, flush=True); time.sleep(600)\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert runner.stdout is not None
    with runner, runner.stdout:
        server = int(runner.stdout.readline())
        assert Path(f"/proc/{server}").exists()
        runner.terminate()
        assert runner.wait(60) == 128 + 15
    assert not Path(f"/proc/{server}").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_server_ends_even_when_its_runner_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from benchmarks.peers.process import spawn\n"
        "code = 'import sys, time; open(sys.argv[1], chr(119)).close(); time.sleep(600)'\n"
        "server = [sys.executable, '-c', code, sys.argv[2]]\n"
        "print(spawn(server, Path(sys.argv[1])).pid, flush=True)\n"
        "sys.stdin.read()"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log"), str(tmp_path / "began")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert runner.stdin is not None
    assert runner.stdout is not None
    with runner, runner.stdout, runner.stdin:
        server = int(runner.stdout.readline())
        waiter = os.pidfd_open(server)
        # Only a server that runs is tied: setpriv asks the kernel for it before it becomes the server.
        until((tmp_path / "began").exists)
        runner.kill()
        readable, _, _ = select.select([waiter], [], [], 30)
        assert readable


def test_a_server_that_does_not_start_says_its_last_words(tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('no room on the disk')"]
    with (
        pytest.raises(process.ServerError, match=r"(?s)ended with 1.*no room on the disk"),
        process.serving(broken, tmp_path / "log", process.free_port()),
    ):
        pass


def test_a_window_waits_for_answers_and_tells_a_failure() -> None:
    window = Window(2)
    first, second = window.take(), window.take()
    window.answered(first)
    third = window.take()
    window.answered(second)
    window.answered(third)
    window.drain()
    assert len(window.latencies_s) == 3
    window.answered(window.take(), "redis: OOM")
    with pytest.raises(RuntimeError, match="redis: OOM"):
        window.drain()
    with pytest.raises(RuntimeError, match="redis: OOM"):
        window.take()
