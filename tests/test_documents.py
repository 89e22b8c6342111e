"""Documents say what the code says, name only what exists, and stay within their sizes."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache

import pytest

from tests import documents

ROOT = documents.ROOT
PROSE_MAX = 120  # characters of a line of Markdown; code and tables apart
CELL_MAX = 160  # characters of a table's cell, where no generator wrote it
PAGES_MAX = {"README.md": (120, PROSE_MAX), "ARCHITECTURE.md": (300, 100)}  # lines, characters of any line
DESIGN_LINES_MAX = 250
RECORDS = re.compile(r"^benchmarks/record/[^/]+/")  # written by programs, one file a run
CELLS_APART = re.compile(r"^benchmarks/record/(?!README)")  # what was seen, with its circumstances
# They speak of what is gone.
OLD_PATHS = {
    "docs/design/renames.md",
    "docs/design/renames_core.md",
    "docs/design/renames_tests.md",
    "CHANGELOG.md",
}
MODULES = (".py", ".pyx", ".rs", ".toml")


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return tuple(sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()}))


PAGES = [name for name in tracked() if name.endswith(".md") and not RECORDS.match(name)]
DESIGN = [page for page in PAGES if page.startswith("docs/design/") and page not in OLD_PATHS]
PACKAGES = [
    name.removesuffix("/__init__.py")
    for name in tracked()
    if name.endswith("/__init__.py") and name.startswith(("client/", "control/", "native/"))
]


def lines_outside_of_code(text: str) -> list[tuple[int, str]]:
    found, is_code = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            found.append((number, line))
    return found


def too_long(text: str, *, with_cells: bool = True) -> list[str]:
    """Lines and cells above their limits. Of a table that a generator wrote nothing is counted."""
    wrong, is_generated = [], False
    for number, line in lines_outside_of_code(text):
        if line.startswith("|"):
            cells = [] if is_generated or not with_cells else re.split(r"(?<!\\)\|", line)
            wrong += [
                f"line {number}: a cell of {len(cell)}"
                for cell in map(str.strip, cells)
                if len(cell) > CELL_MAX
            ]
            continue
        is_generated = line.startswith("<!-- table: ")
        if len(line) > PROSE_MAX:
            wrong.append(f"line {number}: {len(line)} characters")
    return wrong


def paths_in(text: str) -> list[str]:
    """What stands in backticks and begins with a top-level folder of the repository."""
    quoted = [
        path for _, line in lines_outside_of_code(text) for path in re.findall(r"`([A-Za-z_][\w./-]*)`", line)
    ]
    heads = {name.split("/")[0] for name in tracked() if "/" in name}
    return [path for path in quoted if path.split("/")[0] in heads and "/" in path.rstrip("/")]


@cache
def known_paths() -> frozenset[str]:
    known: set[str] = set()
    for name in tracked():
        parts = name.split("/")
        known.update("/".join(parts[:length]) for length in range(1, len(parts) + 1))
        known.update(name.removesuffix(ending) for ending in MODULES)
    return frozenset(known)


def missing_paths(text: str) -> list[str]:
    return [path for path in paths_in(text) if path.rstrip("/") not in known_paths()]


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as GitHub and mkdocs make them."""
    heads = [line.lstrip("#") for _, line in lines_outside_of_code(text) if line.startswith("#")]
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


def unnamed_files(package: str) -> list[str]:
    """Modules of a package that its docstring does not name."""
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    files = [
        name.removeprefix(f"{package}/")
        for name in tracked()
        if name.startswith(f"{package}/") and name.endswith((".py", ".pyx"))
    ]
    modules = [name.rsplit(".", 1)[0] for name in files if "/" not in name and not name.startswith("__")]
    return [module for module in modules if not re.search(rf"\b{module}\b", text)]


def test_the_tables_of_the_operations_guide_are_fresh() -> None:
    text = documents.DOCUMENT.read_text()
    assert set(re.findall(r"<!-- table: ([a-z ]+) -->", text)) == set(documents.TABLES)
    assert documents.main(["--check"]) == 0, "run python -m tests.documents"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_between_documents_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", text):
        place = (ROOT / page).parent / target if target else ROOT / page
        assert place.exists(), f"{page} points to {target}"
        assert not anchor or anchor in anchors(place.read_text()), f"{page} points to {target}#{anchor}"


def test_the_site_shows_every_page() -> None:
    shown = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {name for name in PAGES if name.startswith(("docs/", "benchmarks/record/")) or "/" not in name}
    assert pages == shown, "`nav` of mkdocs.yml"


@pytest.mark.parametrize("page", PAGES)
def test_lines_and_cells_can_be_read_without_scrolling(page: str) -> None:
    wrong = too_long((ROOT / page).read_text(), with_cells=not CELLS_APART.match(page))
    assert wrong == [], page


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OLD_PATHS])
def test_every_path_that_a_document_names_exists(page: str) -> None:
    assert missing_paths((ROOT / page).read_text()) == [], page


@pytest.mark.parametrize("page", PAGES_MAX)
def test_the_first_pages_stay_short(page: str) -> None:
    lines_max, line_max = PAGES_MAX[page]
    lines = (ROOT / page).read_text().split("\n")
    assert len(lines) - 1 <= lines_max
    code_and_tables_too = lines if line_max < PROSE_MAX else []
    assert [line for line in code_and_tables_too if len(line) > line_max] == []


@pytest.mark.parametrize("page", DESIGN)
def test_a_page_of_the_design_stays_one_subject(page: str) -> None:
    assert (ROOT / page).read_text().count("\n") <= DESIGN_LINES_MAX


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_files(package: str) -> None:
    unnamed = unnamed_files(package)
    assert unnamed == [], f"the docstring of {package}/__init__.py does not name them"


def test_the_checks_find_what_they_look_for() -> None:
    prose, cell = "x" * (PROSE_MAX + 1), "y" * (CELL_MAX + 1)
    assert too_long(f"a\n{prose}\n| a | {cell} |\n") == [
        f"line 2: {PROSE_MAX + 1} characters",
        f"line 3: a cell of {CELL_MAX + 1}",
    ]
    assert too_long(f"```\n{prose}\n```\n<!-- table: settings -->\n| {cell} |\n") == []
    assert missing_paths("see `core/log/src/lib.rs`, `tests/sim`, `core/nowhere.rs` and `a/b`") == [
        "core/nowhere.rs"
    ]
