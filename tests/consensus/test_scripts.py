"""Every script of etcd's raft library, under any folder, gives the expected output byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import public_data
from tests.consensus.conftest import report
from tests.consensus.replay import replay, scripts_under

OWN = Path(__file__).parent / "scripts"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "script" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--raft-scripts")
    try:
        folders = [folder] if folder is not None else [public_data("raft"), OWN]
    except pytest.fail.Exception:
        folders = [OWN]  # test_there_are_scripts says what is missing
    scripts = [(path, str(path.relative_to(base))) for base in folders for path in scripts_under(base)]
    metafunc.parametrize("script", [path for path, _ in scripts], ids=[name for _, name in scripts])


def test_there_are_scripts(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--raft-scripts") or public_data("raft")
    assert scripts_under(folder), f"no script under {folder}: a run without any proves nothing"


def test_a_script_gives_what_it_expects(script: Path, request: pytest.FixtureRequest) -> None:
    outcome = replay(script)
    folder = request.config.getoption("--raft-scripts")
    report(request.config, outcome.line(folder or script.parent))
    assert outcome.passed, outcome.line(script.parent)
    if folder is None:  # of other scripts the meaning counts; the report says where log lines differ
        assert outcome.chatter == 0, outcome.line(script.parent)
