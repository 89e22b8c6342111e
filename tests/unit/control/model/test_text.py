"""Texts for people."""

from __future__ import annotations

from ringfence.control.model.text import counted, listed


def test_a_list_that_is_cut_says_so() -> None:
    assert listed([1, 2, 3], 3) == "1, 2, 3"
    assert listed(range(2_006), 3, "; ") == "0; 1; 2; and 2,003 more"
    assert listed([], 3) == ""


def test_one_has_no_plural() -> None:
    assert [counted(count, "node") for count in (0, 1, 2_000)] == ["0 nodes", "1 node", "2,000 nodes"]
