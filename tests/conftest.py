"""What all tests share: where the public test data lies, and how long the long tests run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import longest

# Assertions of shared helpers show their values, as those of test files do. Before the first import of them.
pytest.register_assert_rewrite("tests.fakes", "tests.harness")

from tests.harness.children import signals_restored  # noqa: E402

# How long an example takes tells of the machine, not of what is tested.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parent.parent
DATA_DEFAULT = ROOT.parent / "shared" / "data"


def public_data(*parts: str) -> Path:
    """A file or folder of the public test data. Without it a test fails: a skip would pass unseen."""
    folder = Path(os.environ.get("RINGFENCE_DATA", DATA_DEFAULT))
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.fail(
            f"public test data is missing: {path}; set RINGFENCE_DATA to the folder that holds "
            "'arrow' (files of arrow-testing), 'vectors' (hash vectors), 'porcupine' (labelled histories), "
            "see CONTRIBUTING.md"
        )
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", type=int, default=1, metavar="N", help="repeat crash, fault and load tests N times as long"
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="run tests marked long, too: the cases that a short form stands for",
    )
    parser.addoption(
        "--raft-scripts",
        type=Path,
        default=None,
        metavar="DIR",
        help="tests/consensus runs every script under DIR, not those of the public test data",
    )


def _is_wanted(item: pytest.Item) -> bool:
    marks = list(item.iter_markers("long"))
    for mark in marks:
        if not (len(mark.args) == 1 and isinstance(mark.args[0], str)):
            raise pytest.UsageError(f"{item.nodeid}: pytest.mark.long says which short form every check runs")
    return not marks or item.config.option.long or any("::" in arg for arg in item.config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first; the others, and the tests of a file, stay as they are. Long tests where wanted."""
    wanted = [item for item in items if _is_wanted(item)]
    if len(wanted) < len(items):
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted
    place = {ROOT / file: number for number, file in enumerate(longest.FILES)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(autouse=True)
def own_signal_handlers() -> Iterator[None]:
    """A test leaves no signal handler to the tests after it."""
    with signals_restored():
        yield


@pytest.fixture(scope="module")
def module_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what the tests of one file share. It is removed after them; if one failed, it stays.

    pytest keeps such folders until its session ends. Three dozen data directories took 30 GB of disk by then.
    """
    folder = tmp_path_factory.mktemp(request.path.stem.removeprefix("test_"))
    failed_before = request.session.testsfailed
    yield folder
    if request.session.testsfailed == failed_before:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the public test data."""
    return public_data()


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> int:
    """How many times as long as in `make test` a long test runs; 1 in `make test`."""
    return int(request.config.getoption("--soak"))
