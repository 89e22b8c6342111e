"""Each kind of test has one place (tests/README.md), and each large module a test file of its name."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

import pytest

from tests.module_tests import TESTED_ELSEWHERE, TESTED_ELSEWHERE_MAX
from tests.test_tidy import ROOT, RUST, text_of, tracked

PYTHON = [name for name in tracked(".py") if name.startswith("tests/")]
TESTS = [name for name in PYTHON if PurePosixPath(name).name.startswith("test_")]
ROOMS = ("tests/unit/", "tests/component/", "tests/system/")
"""No file of these imports another one's helpers."""
MODULES = ("control/state_machines/", "control/consensus/", "client/")
MODULE_LINES_MAX = 60
"""A longer module has a test file of its name."""
RUST_LINES_MAX = 100
RUST_LONGER = {"owner.rs": 110}
"""File names whose inline tests are longer today, with their limits; none joins them."""


def modules() -> list[str]:
    """Modules that must have a test file of their name."""
    files = [name for name in tracked(".py") if name.startswith(MODULES)]
    return [
        name
        for name in files
        if not name.endswith("__init__.py") and text_of(name).count("\n") > MODULE_LINES_MAX
    ]


def unit_test_of(module: str) -> str:
    """The start of the names of its test files."""
    path = PurePosixPath(module)
    return f"tests/unit/{path.parent}/test_{path.stem}"


def has_unit_test(module: str, tests: list[str]) -> bool:
    start = unit_test_of(module)
    return any(name == f"{start}.py" or name.startswith(f"{start}_") for name in tests)


def test_a_large_module_has_a_test_file_of_its_name_or_stands_on_the_list() -> None:
    missing = [name for name in modules() if not has_unit_test(name, TESTS) and name not in TESTED_ELSEWHERE]
    assert missing == [], [f"{unit_test_of(name)}.py" for name in missing]


@pytest.mark.parametrize("module", TESTED_ELSEWHERE)
def test_the_list_names_modules_without_a_test_file_and_the_file_that_tests_them(module: str) -> None:
    assert module in modules(), "it is gone, or short by now: take it off tests/module_tests.py"
    assert not has_unit_test(module, TESTS), "it has a test file by now: take it off tests/module_tests.py"
    assert TESTED_ELSEWHERE[module] in TESTS


def test_the_list_only_shrinks() -> None:
    assert len(TESTED_ELSEWHERE) <= TESTED_ELSEWHERE_MAX, "write a test file of the module's name instead"
    assert len(TESTED_ELSEWHERE) == TESTED_ELSEWHERE_MAX, "fewer: lower TESTED_ELSEWHERE_MAX as well"


def stems_at(test: str) -> list[str]:
    """Modules at the place that a unit test stands for: Python, Cython, and Rust of `native`."""
    folder = ROOT / PurePosixPath(test).parent.relative_to("tests/unit")
    files = [*folder.glob("*.py"), *folder.glob("*.pyx"), *(folder / "src").glob("*.rs")]
    return [file.stem for file in files]


@pytest.mark.parametrize("name", [name for name in TESTS if name.startswith("tests/unit/")])
def test_a_unit_test_has_the_name_of_a_module(name: str) -> None:
    stem = PurePosixPath(name).stem.removeprefix("test_")
    is_named = any(stem == module or stem.startswith(f"{module}_") for module in stems_at(name))
    assert is_named, "no module of that name; several modules together are tested in tests/component"


@pytest.mark.parametrize("name", [name for name in PYTHON if name.startswith(ROOMS)])
def test_no_test_file_imports_another(name: str) -> None:
    for node in ast.walk(ast.parse(text_of(name))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            paths = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            others = [path for path in paths if f"{path.replace('.', '/')}.py" in TESTS]
            assert others == [], f"{name}:{node.lineno}: what both need goes to tests/fakes or tests/harness"


@pytest.mark.parametrize("name", [name for name in PYTHON if name not in TESTS])
def test_no_test_stands_where_none_is_collected(name: str) -> None:
    found = [
        node.name
        for node in ast.parse(text_of(name)).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert found == []


def test_the_guide_names_every_folder_of_tests() -> None:
    named = re.findall(r"`tests/(\w+)", text_of("tests/README.md"))
    folders = {name.split("/")[1] for name in tracked() if name.startswith("tests/") and name.count("/") > 1}
    assert folders <= set(named)


def inline_test_lines(text: str) -> int:
    """Lines of `mod tests { .. }` in a Rust file."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        head = re.match(r"(\s*)mod \w+ \{$", line)
        if head and at and lines[at - 1].strip() == "#[cfg(test)]":
            return lines.index(head[1] + "}", at) - at + 1
    return 0


@pytest.mark.parametrize("name", RUST)
def test_long_tests_of_a_rust_file_stand_beside_it(name: str) -> None:
    limit = RUST_LONGER.get(PurePosixPath(name).name, RUST_LINES_MAX)
    assert inline_test_lines(text_of(name)) <= limit, f"move them to {name.removesuffix('.rs')}_tests.rs"


def test_the_checks_find_what_they_look_for() -> None:
    assert has_unit_test("client/reader.py", ["tests/unit/client/test_reader.py"])
    assert has_unit_test("client/reader.py", ["tests/unit/client/test_reader_ends.py"])
    assert not has_unit_test(
        "client/reader.py", ["tests/unit/client/test_readers.py", "tests/test_reader.py"]
    )
    assert inline_test_lines("fn a() {\n}\n#[cfg(test)]\nmod tests {\n    x\n}\n") == 3
    assert inline_test_lines('#[cfg(test)]\n#[path = "x_tests.rs"]\nmod tests;\n') == 0
