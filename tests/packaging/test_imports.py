"""Who imports what: the client stays light, and every package that is listed is used (C7)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

HEAVY = {
    "pyspark",
    "pandas",
    "fastapi",
    "uvicorn",
    "pydantic",
    "click",
    "rich",
    "structlog",
    "prometheus_client",
}
SERVER = HEAVY - {"pyspark", "pandas"}
MODULE_OF = {"pyzmq": "zmq", "pandas-stubs": "pandas", "pytest-timeout": "pytest", "pytest-xdist": "pytest"}
# Programs and plugins: used by name in the files that call them, not by import.
CALLED = {
    "schemathesis": "tests/system",
    "maturin": "setup.py",
    "mkdocs-material": "mkdocs.yml",
    "cython": "setup.py",
    "setuptools": "pyproject.toml",
    "wheel": "Makefile",
    "pip": "Makefile",
    "ruff": "Makefile",
    "mypy": "Makefile",
    "import-linter": "pyproject.toml",
    "pandas-stubs": "pyproject.toml",
    "pytest-timeout": "pyproject.toml",
    "pytest-xdist": "Makefile",
    "pytest-benchmark": "benchmarks",
    "tpchgen-cli": "control",
    "uvicorn": "control",
}


@cache  # every package is looked for in all of them
def imports(folder: str) -> dict[str, set[str]]:
    """Top-level modules that each Python file below `folder` imports, also inside functions."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
        found[str(path.relative_to(ROOT))] = names
    return found


def requirements() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    listed = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        listed += extra
    return sorted({re.split(r"[<>=!~\[ ]", need)[0] for need in listed})


def test_using_the_client_loads_neither_spark_nor_the_server() -> None:
    code = (
        "import sys, ringfence; ringfence.connect, ringfence.slots, ringfence.aio.connect; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) & HEAVY == set()
    assert "pyarrow" in loaded.split()


def test_only_the_spark_package_imports_spark() -> None:
    for folder in ("client", "native", "control"):
        for file, names in imports(folder).items():
            # The demos are Spark jobs; who starts their processes asks the package where it is.
            jobs = ("control/cli/pipeline_jobs", "control/cli/layout_jobs", "control/cli/spark_process")
            allowed = file.startswith(("client/spark/", "control/cli/demo", *jobs))
            assert allowed or not names & {"pyspark", "pandas"}, file


def test_the_client_and_the_seam_import_no_library_of_the_server() -> None:
    for folder in ("client", "native"):
        for file, names in imports(folder).items():
            assert not names & SERVER, f"{file} imports {names & SERVER}"


def text_below(place: str) -> str:
    path = ROOT / place
    files = (
        [path]
        if path.is_file()
        else [file for file in sorted(path.rglob("*")) if file.suffix in {".py", ".toml"}]
    )
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("name", requirements())
def test_every_listed_package_is_used(name: str) -> None:
    if name in CALLED:
        word = {
            "import-linter": "importlinter",
            "wheel": "pip wheel",
            "pytest-xdist": "WORKERS",
            "pytest-timeout": "timeout",
            "pytest-benchmark": "benchmark",
            "tpchgen-cli": "tpchgen",
            "pandas-stubs": "pandas",
            "mkdocs-material": "material",
        }.get(name, name)
        assert re.search(word, text_below(CALLED[name]), re.IGNORECASE), (
            f"{name} is listed, {CALLED[name]} does not use it"
        )
        return
    module = MODULE_OF.get(name, name.replace("-", "_"))
    used = [
        file
        for folder in ("client", "native", "control", "tests", "benchmarks")
        for file, names in imports(folder).items()
        if module in names
    ]
    assert used, f"{name} is listed in pyproject.toml, but nothing imports {module}"


def test_the_card_s_libraries_are_there() -> None:
    """cython, maturin, pyo3, numpy, pyarrow, zmq, click, pytest-benchmark, pyspark."""
    shipped = {
        name
        for folder in ("client", "native", "control")
        for names in imports(folder).values()
        for name in names
    }
    assert {"numpy", "pyarrow", "zmq", "click", "pyspark"} <= shipped
    assert list((ROOT / "native").glob("*.pyx"))
    assert "pyo3" in Path(ROOT, "native", "Cargo.toml").read_text()
