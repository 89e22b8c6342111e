"""Nothing of the interpreter or the environment in `apply`: all nodes get one state on any Python."""

from __future__ import annotations

import ast

import pytest

from ringfence.control.model.characters import BLANKS, is_printable
from tests.test_tidy import PYTHON, text_of
from tests.upgrade import apply_log

APPLIED = ("control/model/", "control/state_machines/")
"""All that `machines.metadata.apply` reaches, and more."""
TABLES = frozenset(
    {
        "isprintable",
        "isalnum",
        "isalpha",
        "isnumeric",
        "isidentifier",
        "istitle",
        "isspace",
        "isupper",
        "islower",
        "casefold",
        "upper",
        "lower",
        "title",
        "capitalize",
        "swapcase",
        "splitlines",
        "expandtabs",
    }
)
"""Methods of str that follow the Unicode tables of each Python."""
DIGITS = frozenset({"isdigit", "isdecimal"})
"""As those, unless only ASCII is looked at."""
BLANK = frozenset({"strip", "lstrip", "rstrip", "split", "rsplit"})
"""Without an argument: what is blank, a table says."""
MODULES = frozenset({"unicodedata", "locale", "os", "sys", "platform", "gettext"})
SET_CALLS = frozenset({"set", "frozenset"})


def faults(source: str) -> list[str]:
    """What in `source` depends on who runs it."""
    found = []
    tree = ast.parse(source)
    lines = source.splitlines()
    # A hash that only serves a dict's lookups goes no further.
    lookups = {
        inner
        for method in ast.walk(tree)
        if isinstance(method, ast.FunctionDef) and method.name == "__hash__"
        for inner in ast.walk(method)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in TABLES:
                found.append(f"{line}: .{name}()")
            case ast.Call(func=ast.Attribute(attr=name)) if name in DIGITS:
                if "isascii()" not in lines[line - 1]:
                    found.append(f"{line}: .{name}() without isascii()")
            case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in BLANK:
                found.append(f"{line}: .{name}() without an argument")
            case ast.Call(func=ast.Name(id="hash" | "id" as name)) if node not in lookups:
                found.append(f"{line}: {name}()")
            case ast.Import(names=names):
                found += [f"{line}: {one.name}" for one in names if one.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                found.append(f"{line}: {module}")
            case ast.For(iter=over) | ast.comprehension(iter=over) if _is_set(over):
                found.append(f"{over.lineno}: the order of a set; sort it")
    return found


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in SET_CALLS
        case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _is_set(left) or _is_set(right)
        case _:
            return False


@pytest.mark.parametrize("name", [name for name in PYTHON if name.startswith(APPLIED)])
def test_what_apply_reaches_depends_on_no_interpreter(name: str) -> None:
    assert not faults(text_of(name)), name


@pytest.mark.parametrize(
    "line",
    [
        "ok = name.isprintable()",
        "ok = name.isdigit()",
        "text = name.strip()",
        "text = name.lower()",
        "number = hash(name)",
        "import unicodedata",
        "from locale import strcoll",
        "for one in set(names): pass",
        "made = [one for one in {1, 2}]",
        "for one in set(a) - b: pass",
    ],
)
def test_each_kind_is_found(line: str) -> None:
    assert faults(line)


def test_what_is_fixed_is_let_be() -> None:
    assert not faults("ok = name.isascii() and name.isdigit()")
    assert not faults("text = name.strip(' ')")
    assert not faults("for a in sorted(set(b)): pass")
    assert not faults("class A:\n    def __hash__(self): return hash(self.a)")


# ---- what was recorded --------------------------------------------------------------------------------


def test_the_recorded_log_gives_the_recorded_hash() -> None:
    """As the older program told it, on the Python that it ran on; names of other scripts are in it."""
    index, told = apply_log.recorded()
    assert apply_log.applied(index) == told


def test_printable_is_one_table_and_takes_every_name_that_this_python_prints() -> None:
    every = [chr(number) for number in range(0x110000)]
    refused = {letter for letter in every if not is_printable(letter)}
    assert not {letter for letter in refused if letter.isprintable()}
    assert len(refused) == 139_828
    assert all(is_printable(name) for name in ("läder", "東京", "🚀", "a b", "\u0378"))


def test_blank_is_what_this_python_strips() -> None:
    assert set(BLANKS) == {chr(number) for number in range(0x110000) if not chr(number).strip()}
