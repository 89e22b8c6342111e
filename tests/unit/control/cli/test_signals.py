"""A signal between the start of a child process and its registration must not leave the process running."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli import signals
from ringfence.control.cli.embedded import embedded_node
from ringfence.control.cli.local_cluster import LocalCluster
from ringfence.control.cli.spark_process import spark_process
from tests.harness.children import children, signals_not_ignored
from tests.harness.processes import until


class InterruptedPopen(subprocess.Popen[bytes]):
    """SIGTERM arrives right after the fork, before the caller has the object."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)


def arrives_while_open(number: signal.Signals, done: list[signal.Signals]) -> None:
    signal.raise_signal(number)
    done.append(number)


@pytest.fixture(autouse=True)
def taken_signals() -> Iterator[None]:
    with signals_not_ignored():
        yield


@pytest.mark.parametrize("number", signals.ENDING)
def test_a_deferred_signal_arrives_after_the_block(number: signal.Signals) -> None:
    done: list[signal.Signals] = []
    with signals.ending_as_interrupt():
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt), signals.deferred():
            arrives_while_open(number, done)
        assert done == [number]
        assert signal.getsignal(number) is before


def test_an_error_in_the_block_passes_and_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(FileNotFoundError), signals.deferred():
        raise FileNotFoundError
    assert signal.getsignal(signal.SIGINT) is before


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.ending_as_interrupt(), signals.deferred():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_leave_the_handlers_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def block() -> None:
        with signals.ending_as_interrupt(), signals.deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_node_of_a_cluster_that_just_started_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    with (
        signals.ending_as_interrupt(),
        pytest.raises(KeyboardInterrupt),
        LocalCluster(tmp_path, threading.Event()) as cluster,
    ):
        cluster.start(1)
    assert children(tmp_path) == []


def test_an_embedded_node_that_just_started_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    with (
        signals.ending_as_interrupt(),
        pytest.raises(KeyboardInterrupt),
        embedded_node(data=tmp_path / "data"),
    ):
        pytest.fail("the signal did not arrive")
    assert children(tmp_path) == []


def test_a_spark_driver_that_just_started_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "waiting_driver.py"
    module.write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    with (
        signals.ending_as_interrupt(),
        pytest.raises(KeyboardInterrupt),
        spark_process(tmp_path / "spark", "waiting_driver", str(tmp_path / "argument")),
    ):
        pytest.fail("the signal did not arrive")
    until(lambda: not children(tmp_path), what="the driver to end", timeout_s=30)


@pytest.mark.parametrize("prefix", [[], ["nohup"]])
def test_a_closed_terminal_ends_a_node_unless_it_runs_with_nohup(prefix: list[str], tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "ringfence.control.cli", "serve", "--listen", "tcp://127.0.0.1:0"]
    command = [*prefix, *serve, "--data", str(tmp_path)]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert node.stdout is not None
        with node.stdout:
            assert node.stdout.readline()
        node.send_signal(signal.SIGHUP)
        if prefix:
            with pytest.raises(subprocess.TimeoutExpired):
                node.wait(2)
            node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0
    finally:
        node.kill()
        node.wait()
