"""The replay itself: it reads the format, and a script that is wrong fails and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import public_data
from tests.consensus.__main__ import main
from tests.consensus.datadriven import Argument, ScriptSyntaxError, cases_of, parse_directive
from tests.consensus.replay import replay

SCRIPT = """# a comment

add-nodes 1 voters=(1) index=3
----
INFO 1 switched to configuration voters=(1)
INFO 1 became follower at term 0
INFO newRaft 1 [peers: [1], term: 0, commit: 3, applied: 3, lastindex: 3, lastterm: 1]

campaign 1
----
INFO 1 is starting a new election at term 0
INFO 1 became candidate at term 1

raft-state
----
1: StateCandidate (Voter) Term:1 Lead:0
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.txt"
    path.write_text(text)
    return path


def test_a_directive_keeps_the_order_of_its_arguments() -> None:
    command, arguments = parse_directive("do 1 a= b=x c=(1, (2,3),4 ) d=() e")
    assert command == "do"
    assert arguments == (
        Argument("1"),
        Argument("a", ("",)),
        Argument("b", ("x",)),
        Argument("c", ("1", "(2,3)", "4 ")),
        Argument("d", ("",)),
        Argument("e"),
    )


def test_a_file_is_cases_with_input_comments_continuation_and_double_separators(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a b \\\n  c\n# input\nmore\n----\n----\none\n\ntwo\n----\n----\n\n# no\nd\n----\n\ne\n----\nx",
    )
    found = [(c.line, c.command, len(c.arguments), c.input, c.expected) for c in cases_of(path)]
    assert found == [
        (1, "a", 2, "# input\nmore", "one\n\ntwo\n"),
        (14, "d", 0, "", ""),
        (17, "e", 0, "", "x\n"),
    ]


@pytest.mark.parametrize("text", ["a (\n", "a b=(1\n----\n", "a\n----\n----\nx\n"])
def test_a_file_that_is_no_script_fails(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ScriptSyntaxError):
        cases_of(path)
    assert not replay(path).passed


def test_a_right_script_passes_exactly(tmp_path: Path) -> None:
    outcome = replay(written(tmp_path, SCRIPT))
    assert (outcome.passed, outcome.cases, outcome.chatter) == (True, 3, 0)


def test_a_wrong_state_fails_and_names_line_command_expected_and_got(tmp_path: Path) -> None:
    outcome = replay(written(tmp_path, SCRIPT.replace("StateCandidate (Voter)", "StateLeader (Voter)")))
    assert not outcome.passed
    assert "line 14, 'raft-state'" in outcome.failure
    assert "--- expected\n1: StateLeader" in outcome.failure
    assert "--- got\n1: StateCandidate" in outcome.failure


def test_a_difference_in_log_lines_alone_passes_at_a_lower_level(tmp_path: Path) -> None:
    outcome = replay(written(tmp_path, SCRIPT.replace("became candidate", "turned candidate")))
    assert (outcome.passed, outcome.chatter) == (True, 1)
    assert "log lines differ in 1" in outcome.line(tmp_path)


def test_an_unknown_command_and_a_crash_are_failures_of_their_file(tmp_path: Path) -> None:
    assert not replay(written(tmp_path, SCRIPT + "\nno-such-thing\n----\nok\n")).passed
    outcome = replay(written(tmp_path, SCRIPT + "\ncampaign x\n----\nok\n"))
    assert "crashed" in outcome.failure


def test_the_report_prints_a_line_for_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, SCRIPT)
    assert main([str(tmp_path)]) == 0
    assert "script.txt passed (3 cases, exact)" in capsys.readouterr().out
    (tmp_path / "wrong.txt").write_text(SCRIPT.replace("Lead:0", "Lead:1"))
    assert main([str(tmp_path)]) == 1
    assert "wrong.txt failed at line 14" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 2


def test_a_node_that_behaves_differently_fails_public_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringfence.control.consensus import replication

    monkeypatch.setattr(replication, "broadcast_heartbeat", lambda _core: None)
    assert not replay(public_data("raft", "testdata", "checkquorum.txt")).passed
