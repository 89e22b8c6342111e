"""`make setup`: one line that names what is missing, and locks that are complete."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.packaging.test_imports import requirements

LOCKS = ("requirements-dev.txt", "requirements-docs.txt")
PLAIN = "sh cat cut dirname env find head ls sed sha256sum sort tr xargs"
TOOLS = {
    "cargo": "echo cargo 1.95.0",
    "rustc": "echo rustc 1.95.0",
    "cc": "true",
    "c++": "true",
    "java": "echo 'openjdk version \"17.0.15\" 2025' >&2",
    "uv": "true",
    "python3": "exit 0",
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout's setup and a machine whose tools all answer as they should."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup.sh", tmp_path / "tools" / "setup.sh")
    (tmp_path / "requirements-dev.txt").write_text("")
    (tmp_path / "bin").mkdir()
    for name in PLAIN.split():
        found = shutil.which(name)
        assert found, f"{name} is missing on this machine"
        (tmp_path / "bin" / name).symlink_to(found)
    for name, answer in TOOLS.items():
        plant(tmp_path, name, answer)
    return tmp_path


def plant(machine: Path, name: str, answer: str) -> None:
    program = machine / "bin" / name
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)


def setup(machine: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine / "bin"), "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        [machine / "tools" / "setup.sh"], env=environment, capture_output=True, text=True, check=False
    )


OPTIONS = """
import setuptools
from distutils.core import run_setup
edit, wheel = (run_setup("setup.py", script_args=[name], stop_after="commandline").get_command_obj(name)
               for name in ("editable_wheel", "bdist_wheel"))
edit.ensure_finalized(), wheel.ensure_finalized()
print(edit.mode, wheel.py_limited_api)
"""


def test_wheels_are_made_as_wanted_without_a_warning() -> None:
    asks = [sys.executable, "-c", OPTIONS]
    done = subprocess.run(asks, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "strict cp311\n", "")


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("python3", "Python >= 3.11"),
        ("cargo", "Rust >= 1.88"),
        ("java", "Java >= 17"),
        ("cc", "C and C++ compiler"),
        ("c++", "C and C++ compiler"),
    ],
)
def test_a_missing_tool_gives_one_line_that_names_it_and_how_to_get_it(
    machine: Path, gone: str, named: str
) -> None:
    (machine / "bin" / gone).unlink()
    done = setup(machine)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("setup: ") and named in line and "Install" in line, line


@pytest.mark.parametrize(
    ("name", "answer", "named"),
    [
        ("rustc", "echo rustc 1.87.0", "Rust is 1.87.0, 1.88 is needed"),
        ("java", "echo 'openjdk version \"11.0.2\"' >&2", "Java is 11, Spark needs 17"),
        ("java", "echo 'java version \"1.8.0_402\"' >&2", "Java is 1, Spark needs 17"),
        ("python3", "exit 1", "Python >= 3.11"),
    ],
)
def test_a_tool_that_is_too_old_is_named_with_its_version(
    machine: Path, name: str, answer: str, named: str
) -> None:
    plant(machine, name, answer)
    done = setup(machine)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert named in line


def test_a_machine_that_has_everything_gets_past_the_checks(machine: Path) -> None:
    done = setup(machine)
    assert "packages of requirements-dev.txt" in done.stderr, done.stderr


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_hashes_and_no_address_is_written(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text and "--index" not in text
    entries = re.split(r"\n(?=[a-z0-9])", text.strip())
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_lock_has_every_package_that_pyproject_names() -> None:
    texts = "".join((ROOT / lock).read_text() for lock in LOCKS)
    locked = set(re.findall(r"^([a-z0-9._-]+)==", texts, re.MULTILINE))
    assert set(requirements()) <= locked, "run `make lock`"


def test_cargo_s_lock_is_that_of_the_manifests() -> None:
    done = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version=1", "--no-deps", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
