"""Cases of a test of which every check runs a few, and `make test-long` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case", bound=object)


def long_but(short: Collection[Case], cases: Iterable[Case]) -> list[Case | ParameterSet]:
    """`cases` as parameters of a test, those that are not in `short` marked as long.

    Raises ValueError for a short case that is none of the cases: its name has changed, and nothing would run.
    """
    known = list(cases)
    if unknown := [case for case in short if case not in known]:
        raise ValueError(f"{unknown} are none of the cases {known}")
    if not short:
        raise ValueError("a test of which every check runs nothing has no short form")
    mark = pytest.mark.long(f"every check runs {list(short)}")
    return [case if case in short else _marked(case, mark) for case in known]


def _marked(case: object, mark: pytest.MarkDecorator) -> ParameterSet:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=mark)
