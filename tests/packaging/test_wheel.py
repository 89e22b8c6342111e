"""One wheel, built from the sdist's own content, that works in a fresh environment (C1).

Its Rust is built in the profile of `cargo test`, whose libraries it shares; `make setup` builds the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from hashlib import sha256
from pathlib import Path

import pytest

from ringfence.control.cli.local_ports import free_ports
from tests.conftest import ROOT

PIP = (sys.executable, "-m", "pip")

pytestmark = pytest.mark.timeout(1500)  # a cold build of the whole workspace on two busy cores


def run(*command: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    build = f"import setuptools.build_meta as build; build.build_sdist({str(folder)!r})"
    run(sys.executable, "-c", build, cwd=ROOT)
    (found,) = folder.glob("ringfence-*.tar.gz")
    return found


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    # Isolated, as a user's pip does it: what the build needs is what pyproject.toml says, and nothing else.
    options = ("-q", "--no-deps", "-w", str(folder / "out"))
    # Crates of the registry are shared with the checkout; the workspace's own are built again.
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    run(*PIP, "wheel", *options, ".", cwd=source, CARGO_TARGET_DIR=target, RINGFENCE_PROFILE="dev")
    (found,) = (folder / "out").glob("*.whl")
    return found


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what it depends on comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True, with_pip=False)
    found = folder / "bin" / "python"
    run(*PIP, "--python", found, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    site = run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return found


def test_the_wheel_has_both_kinds_of_native_modules_stubs_types_and_licence(wheel: Path) -> None:
    assert wheel.name.startswith("ringfence-") and wheel.name.endswith("-cp311-abi3-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    native = {
        name.removeprefix("ringfence/native/") for name in names if name.startswith("ringfence/native/")
    }
    for module in ("_node", "slots", "group", "frame"):
        assert {f"{module}.abi3.so", f"{module}.pyi"} <= native
    assert "ringfence/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    unwanted = [
        name for name in names if name.endswith((".pyx", ".pxd", ".h", ".rs", ".c")) or "gen_wire" in name
    ]
    assert unwanted == []


def test_the_wheel_has_every_package_of_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    folders = {"client": "ringfence", "native": "ringfence/native", "control": "ringfence/control"}
    expected = {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for folder, package in folders.items()
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "gen_wire.py"
    }
    assert expected <= names, f"not in the wheel: {sorted(expected - names)}; does a folder lack __init__.py?"


def test_a_fresh_environment_imports_the_wheel_and_runs_the_command(python: Path, tmp_path: Path) -> None:
    code = (
        "import ringfence, pyarrow as pa; from ringfence.native import _node, frame, group; "
        "print(ringfence.__file__, ringfence.slots(pa.record_batch({'k': [1]}), key=['k'])[0])"
    )
    file, slot = run(python, "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(python.parent.parent)
    # xxhash64(1L) of Spark is -7001672635703045582; its upper 16 bits
    assert int(slot) == (-7001672635703045582 & (1 << 64) - 1) >> 48
    code = "import importlib.metadata as metadata; print(metadata.version('ringfence'))"
    version = run(python, "-c", code, cwd=tmp_path).strip()
    assert version in run(python.parent / "ringfence", "--version", cwd=tmp_path)


def test_the_wheel_names_what_it_needs_and_pins_nothing_from_above_that_it_need_not(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Requires-Python"] == ">=3.11"
    base = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert not [need for need in base if "<" in need or "==" in need]
    assert any(need.startswith("pyarrow>=") for need in base)


def test_the_main_spark_job_runs_out_of_the_installed_wheel(python: Path, tmp_path: Path) -> None:
    """C1: lineitem through Spark into a node and back, content hashes equal, out of the wheel alone."""
    ours = sysconfig.get_path("scripts")
    programs = os.pathsep.join([str(python.parent), ours, os.environ["PATH"]])
    demo = ("demo", "--scale", "0.001", "--json")
    lines = run(python.parent / "ringfence", *demo, cwd=tmp_path, PATH=programs, PYTHONPATH="").splitlines()
    *steps, last = [json.loads(line) for line in lines]
    assert last["equal"], lines
    assert last["rows"] > 5_000
    hashes = {step["name"]: step["digest"] for step in steps}
    spoken = [name for name in hashes if "Spark" in name]
    assert len(spoken) == 2, hashes
    assert {digest for digest in hashes.values() if digest is not None} == {last["hash"]}
    where = run(python, "-c", "import ringfence.spark as it; print(it.__file__)", cwd=tmp_path, PYTHONPATH="")
    assert Path(where.strip()).is_relative_to(python.parent.parent)


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and what it says that it needs: the very files of the lock."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True, with_pip=False)
    digest = sha256(wheel.read_bytes()).hexdigest()
    (folder / "wanted.txt").write_text(f"{wheel} --hash=sha256:{digest}\n")
    found = folder / "bin" / "python"
    # Compiled where it is imported, as by `make setup`.
    options = ("-q", "--no-compile", "--require-hashes", "-c", ROOT / "requirements-dev.txt")
    run(*PIP, "--python", found, "install", *options, "-r", "wanted.txt", cwd=folder)
    return found


USE = """
import json, sys, pyarrow as pa, ringfence
rows = [{"id": number, "text": f"row {number}"} for number in range(1_000)]
batch = pa.RecordBatch.from_pylist(rows)
with ringfence.connect(sys.argv[1], timeout_s=30) as client:
    client.create_topic("t", schema=batch.schema, key=["id"], partitions=3)
    with client.producer("t") as producer:
        for start in range(0, 1_000, 100):
            producer.send(batch.slice(start, 100))
    read = [row for part in client.read("t") for row in part.to_pylist()]
assert sorted(read, key=lambda row: row["id"]) == rows
print(json.dumps({"file": ringfence.__file__, "path": sys.path, "rows": len(read)}))
"""


def test_a_node_and_a_client_of_the_installed_wheel_work_without_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    program = str(installed.parent / "ringfence")
    command = [program, "serve", "--json", "--data", "data", "--listen", address]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    with node:
        try:
            assert node.stdout is not None
            line = node.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            assert json.loads(line)["address"] == address
            used = json.loads(run(installed, "-c", USE, address, cwd=tmp_path, PYTHONPATH=""))
            shown = run(program, "topic", "show", "t", "--json", cwd=tmp_path, RINGFENCE_ADDRESS=address)
            node.terminate()
            assert node.wait(30) == 0, (tmp_path / "log").read_text()
        finally:
            node.kill()
    assert used["rows"] == 1_000
    assert Path(used["file"]).is_relative_to(installed.parent.parent)
    assert not [path for path in used["path"] if Path(path).is_relative_to(ROOT)]
    assert "public/default/t" in shown
