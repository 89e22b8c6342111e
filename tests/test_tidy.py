"""House rules as tests: sizes, purity, unsafe code, what the repository must not say; each says why."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 500  # one idea a file: what does not fit is two ideas
FUNCTION_LINES_MAX = 70  # a function fits on one screen
GENERATED = {"core/wire/src/generated.rs", "native/wire.py", "native/wire.pxd"}
UNSAFE_ALLOWED = re.compile(
    r"^(core/buffer/src/|core/transport/src/\w*ffi|native/src/capsule|benchmarks/native/src/)"
)
PURE = (
    "control/model/",
    "control/state_machines/",
    "control/consensus/",
    "client/common/arguments.py",
    "client/common/codec.py",
    "client/common/extension.py",
    "client/common/failure_detector.py",
    "client/common/lineage.py",
    "client/common/retry.py",
    "client/common/routes.py",
    "client/common/routing.py",
    "client/common/scope_values.py",
    "client/common/send_effects.py",
    "client/common/type_families.py",
    "client/consumer/absence.py",
    "client/consumer/any_member.py",
    "client/consumer/beats.py",
    "client/consumer/bodies.py",
    "client/consumer/stores.py",
    "client/consumer/calls.py",
    "client/consumer/fetching.py",
    "client/consumer/gate.py",
    "client/consumer/giving.py",
    "client/consumer/holding.py",
    "client/consumer/member.py",
    "client/consumer/dead_letters.py",
    "client/consumer/parked_export.py",
    "client/consumer/queue_bodies.py",
    "client/consumer/queue_calls.py",
    "client/consumer/queue_fetching.py",
    "client/consumer/queue_hands.py",
    "client/consumer/queue_member.py",
    "client/consumer/queue_rows.py",
    "client/consumer/queue_telling.py",
    "client/consumer/routes.py",
    "client/consumer/session.py",
    "client/consumer/settle.py",
    "client/consumer/state.py",
    "client/consumer/values.py",
    "client/send/inflight.py",
    "client/send/partition_queue.py",
    "client/send/reroute.py",
    "client/send/resume.py",
    "client/send/send_numbers.py",
)
IMPURE_MODULES = {
    "time",
    "random",
    "secrets",
    "socket",
    "threading",
    "asyncio",
    "os",
    "io",
    "pathlib",
    "zmq",
    "datetime",
    "uuid",
    "subprocess",
    "tempfile",
    "selectors",
    "queue",
    "concurrent",
}
FORBIDDEN_CALLS = {"eval", "exec"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve"}
PRODUCT = ("client/", "native/", "control/", "pyspark_ringfence/")
PREPARED = {
    "native/struct_types.py:prepare_types": "it prepares them",
    "native/messages.py:decode": "messages, which `prepare_messages` prepares",
    "client/common/codec.py:control_body": "the same",
    "control/state_machines/rebalance/run_rates.py:decode_windows": "its module prepares `Windows`",
}
"""Functions that name to msgspec a type to decode, and why its fields are read already."""


def tracked(*endings: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    return [name for name in listed.split("\0") if name.endswith(endings) and (ROOT / name).is_file()]


CODE = tracked(".rs", ".py", ".pyx", ".pxd", ".c")
PYTHON = [name for name in CODE if name.endswith(".py")]
RUST = [name for name in CODE if name.endswith(".rs")]


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", [name for name in CODE if name not in GENERATED])
def test_a_file_is_one_idea(name: str) -> None:
    lines = text_of(name).count("\n")
    assert lines <= FILE_LINES_MAX, (
        f"{name} has {lines} lines: split it by idea, {FILE_LINES_MAX} is the limit"
    )


def lines_of(name: str) -> list[str]:
    return text_of(name).split("\n")


def is_table(lines: list[str], node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A function that is one long list says so with `# table` behind its head."""
    return any(line.endswith("# table") for line in lines[node.lineno - 1 : node.body[0].lineno])


@pytest.mark.parametrize("name", [name for name in PYTHON if name not in GENERATED])
def test_a_python_function_fits_on_a_screen(name: str) -> None:
    for node in ast.walk(ast.parse(text_of(name))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_table(lines_of(name), node):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{name}:{node.lineno} {node.name} has {lines} lines"


def rust_functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, lines) of each `fn`: rustfmt closes it with `}` at the indent of its head."""
    found, lines = [], text.split("\n")
    for at, line in enumerate(lines):
        head = re.match(
            r"^(\s*)(?:pub(?:\([a-z ]+\))? )?(?:const |unsafe |async |extern \"C\" )*fn (\w+)", line
        )
        if head:
            end = next(
                (
                    i
                    for i in range(at, len(lines))
                    if lines[i] == head[1] + "}" or (i == at and line.rstrip().endswith(("}", ";")))
                ),
                at,
            )
            found.append((head[2], at + 1, end - at + 1))
    return found


@pytest.mark.parametrize("name", [name for name in RUST if name not in GENERATED])
def test_a_rust_function_fits_on_a_screen(name: str) -> None:
    for function, line, lines in rust_functions(text_of(name)):
        assert lines <= FUNCTION_LINES_MAX, f"{name}:{line} {function} has {lines} lines"


@pytest.mark.parametrize("name", RUST)
def test_unsafe_stays_in_its_few_files_and_proves_itself(name: str) -> None:
    lines = text_of(name).split("\n")
    for at, line in enumerate(lines):
        code = line.split("//")[0]
        if (
            re.search(r"\bunsafe\b", code)
            and "forbid(unsafe_code)" not in code
            and "unsafe_op_in_unsafe_fn" not in code
        ):
            assert UNSAFE_ALLOWED.match(name), (
                f"{name}:{at + 1}: unsafe belongs into the FFI and buffer files only"
            )
            above = "\n".join(lines[max(0, at - 8) : at + 1])
            assert "SAFETY" in above or "# Safety" in above or 'extern "C"' in code, (
                f"{name}:{at + 1}: say why it is sound"
            )


@pytest.mark.parametrize("name", [name for name in PYTHON if name.startswith(PURE)])
def test_a_pure_module_names_no_clock_socket_file_thread_or_randomness(name: str) -> None:
    for node in ast.walk(ast.parse(text_of(name))):
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        impure = {module.split(".")[0] for module in modules} & IMPURE_MODULES
        assert not impure, f"{name}: a simulator drives it, so {impure} must come from outside"


@pytest.mark.parametrize("name", PYTHON)
def test_no_code_is_read_from_data(name: str) -> None:
    for node in ast.walk(ast.parse(text_of(name))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"{name}:{node.lineno}: {node.func.id}"
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & FORBIDDEN_MODULES, f"{name}:{node.lineno}"
        if isinstance(node, ast.keyword) and node.arg == "shell" and isinstance(node.value, ast.Constant):
            assert not node.value.value, f"{name}:{node.lineno}: shell=True"


def _names_a_type_to_msgspec(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name.split(".")[0] != "msgspec":
        return False
    typed = len(call.args) > 1 or any(keyword.arg == "type" for keyword in call.keywords)
    return name.endswith(".Decoder") or (name.endswith((".decode", ".convert")) and typed)


@pytest.mark.parametrize("name", [name for name in PYTHON if name.startswith(PRODUCT)])
def test_types_to_decode_are_read_at_import_since_msgspec_lets_threads_use_half_read_ones(name: str) -> None:
    """`native/struct_types.py` says why. A decoder at the level of its module needs nothing else."""
    tree = ast.parse(text_of(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "msgspec":
            hidden = {alias.name for alias in node.names} & {"convert", "json", "msgpack"}
            assert not hidden, f"{name}:{node.lineno}: write msgspec.{hidden.pop()}, which this test finds"
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if f"{name}:{function.name}" in PREPARED:
            continue
        for call in ast.walk(function):
            assert not isinstance(call, ast.Call) or not _names_a_type_to_msgspec(call), (
                f"{name}:{call.lineno}: make the decoder outside of functions, or call prepare_types there"
            )


def test_the_repository_speaks_of_ringfence_alone() -> None:
    """A path of one machine, or the name of a place only its author can reach, helps no reader."""
    listed = subprocess.run(
        ["git", "grep", "-nEI", r"(^|[^A-Za-z0-9_.])/(work|farm)/|\.library|pypi\.org/simple|/root/"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    lines = [line for line in listed.splitlines() if not line.startswith("tests/test_tidy.py:")]
    assert lines == []


def test_no_code_says_of_itself_that_it_is_unfinished() -> None:
    words = r"todo!\(|unimplemented!\(|\bNotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b|mark\.xfail|#\[ignore"
    listed = subprocess.run(
        ["git", "grep", "-nEI", words, "--", "*.rs", "*.py", "*.pyx"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert [line for line in listed.splitlines() if not line.startswith("tests/test_tidy.py:")] == []


@pytest.mark.parametrize("name", [name for name in PYTHON if name.startswith(("tests/", "benchmarks/"))])
def test_no_folder_of_a_test_stays_behind(name: str) -> None:
    made = [
        node.lineno
        for node in ast.walk(ast.parse(text_of(name)))
        if isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id)
        in {"mkdtemp", "mkstemp", "gettempdir"}
    ]
    assert not made, f"{name}:{made}: nobody removes it; use tmp_path, or TemporaryDirectory"


def _lives_for_a_session(function: ast.FunctionDef) -> bool:
    return any(
        keyword.arg == "scope" and ast.literal_eval(keyword.value) == "session"
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )


@pytest.mark.parametrize("name", [name for name in PYTHON if name.startswith("tests/")])
def test_no_folder_outlives_the_file_that_uses_it(name: str) -> None:
    """pytest removes a folder of `tmp_path_factory` at the end of its session, when the disk may be full."""
    users = [
        node.name
        for node in ast.walk(ast.parse(text_of(name)))
        if isinstance(node, ast.FunctionDef)
        and any(argument.arg == "tmp_path_factory" for argument in node.args.args)
        and not _lives_for_a_session(node)
    ]
    allowed = ["module_folder"] if name == "tests/conftest.py" else []
    assert users == allowed, "use module_folder, or tmp_path"


# Crates whose files import each other in one direction only: a reader can take them in that order.
LAYERED_CRATES = ("core/log", "core/batch", "core/transport", "core/node")
USE_LINE = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?use ((?:crate|super)(?:::super)*)::([^;]+);", re.MULTILINE
)


def use_paths(tree: str) -> list[list[str]]:
    """The paths of a use tree: `a::{b, c::d}` gives [a, b] and [a, c, d]."""
    head, brace, group = tree.partition("{")
    first = [name.split(" as ")[0].strip() for name in head.split("::") if name.strip()]
    if not brace:
        return [first]
    parts, depth = [""], 0
    for character in group.rstrip().removesuffix("}"):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [first + path for part in parts if part.strip() for path in use_paths(part.strip())]


def crate_imports(crate: str) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Modules of a crate, each with those that its `use crate::` and `use super::` lines name."""
    texts = {}
    for name in CODE:
        if not name.startswith(f"{crate}/src/") or name.endswith("_tests.rs"):
            continue
        parts = name.removeprefix(f"{crate}/src/").removesuffix(".rs").split("/")
        if parts[-1] in {"lib", "mod"}:
            parts.pop()
        texts[tuple(parts)] = text_of(name).partition("#[cfg(test)]\nmod tests {")[0]
    imports: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, text in texts.items():
        imports[module] = set()
        for base, tree in USE_LINE.findall(text):
            start = [] if base == "crate" else list(module[: -base.count("super")])
            for path in use_paths(tree):
                target = tuple(start + path)
                while target not in texts:  # the last names of a path are items of a file
                    target = target[:-1]
                imports[module].add(target)
        imports[module].discard(module)
    return imports


def circle_of(imports: dict[tuple[str, ...], set[tuple[str, ...]]]) -> list[str]:
    """Modules that are left after every module without an import among them was removed, again and again."""
    left = set(imports)
    while free := {module for module in left if not imports[module] & left}:
        left -= free
    return sorted("/".join(module) or "lib" for module in left)


@pytest.mark.parametrize("crate", LAYERED_CRATES)
def test_files_of_a_crate_import_in_no_circle(crate: str) -> None:
    imports = crate_imports(crate)
    assert len(imports) > 10, "the crate has moved"
    assert circle_of(imports) == []


def test_a_circle_of_files_is_found() -> None:
    assert use_paths("{a, b::{C, d::E}, f as g}") == [["a"], ["b", "C"], ["b", "d", "E"], ["f"]]
    circle: dict[tuple[str, ...], set[tuple[str, ...]]] = {("b",): {("c",)}, ("c",): {("b",)}}
    assert circle_of({("a",): {("b",)}, **circle}) == ["a", "b", "c"]
    assert circle_of({("a",): {("b",)}, ("b",): set()}) == []


# The rooms of core/node, lowest first: a file uses its own room and rooms of lower layers.
NODE_LAYERS = (
    ("ids", "counters", "settings", "error", "planted_bugs"),
    ("config",),
    ("api",),
    ("turn", "codec"),
    ("replication/state", "cohorts/state"),
    ("cohorts/claims",),
    ("transactions",),
    ("cohorts/queue",),
    ("cohorts/gate", "cohorts/sessions"),
    ("partition",),
    ("ingest", "clients"),
    ("replication",),
    ("reads", "orders"),
    ("cohorts",),
    ("maintenance",),
    ("engine",),
    ("runtime",),
)
NODE_ROOMS = {room: layer for layer, rooms in enumerate(NODE_LAYERS) for room in rooms}
# (file, what it uses) that break the order. The list may only shrink.
NODE_UPWARD: frozenset[tuple[str, str]] = frozenset()


def room_of(module: tuple[str, ...]) -> str:
    found = [room for room in NODE_ROOMS if module[: room.count("/") + 1] == tuple(room.split("/"))]
    assert found, f"core/node/src/{'/'.join(module)} stands in no room of NODE_LAYERS"
    return max(found, key=len)


def test_rooms_of_core_node_use_lower_rooms_only() -> None:
    upward = set()
    for module, used in crate_imports("core/node").items():
        if not module:
            continue  # lib.rs names all rooms
        for target in used:
            here, there = room_of(module), room_of(target)
            if here != there and NODE_ROOMS[there] >= NODE_ROOMS[here]:
                upward.add(("/".join(module), "/".join(target)))
    assert upward == NODE_UPWARD


def test_only_the_engine_knows_all_machines() -> None:
    knowing = {
        name.removeprefix("core/node/src/")
        for name in RUST
        if name.startswith("core/node/src/")
        and re.search(r"^impl (?:Engine|Parts)\b", text_of(name), re.MULTILINE)
    }
    assert len(knowing) <= 8
    assert all(name.startswith("engine/") for name in knowing), knowing
