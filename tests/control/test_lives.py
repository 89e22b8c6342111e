"""One life of a node counts at a time: two at once are found, one after the other is a restart."""

from __future__ import annotations

from ringfence.control.transport.incarnations import (
    CONTEST_MS,
    FORMER_MAX,
    NODES_MAX,
    PROOF_MS,
    PROOFS,
    QUIET_MS,
    Incarnations,
    Verdict,
)

ORIGINAL, COPY = 11, 22


def test_a_restart_waits_until_the_life_before_was_quiet() -> None:
    lives = Incarnations()
    assert lives.judge(3, ORIGINAL, 0) is Verdict.TAKE
    assert lives.judge(3, COPY, QUIET_MS - 1) is Verdict.WAIT
    assert (lives.silence_ms(3, QUIET_MS), lives.silence_ms(4, QUIET_MS)) == (QUIET_MS, None)
    assert lives.judge(3, COPY, QUIET_MS) is Verdict.TAKE
    assert lives.silence_ms(3, QUIET_MS) == 0
    assert lives.contested(QUIET_MS) == []


def test_a_copy_is_fenced_while_the_original_is_heard() -> None:
    lives = Incarnations()
    verdicts = []
    for now_ms in range(0, 2_000, 50):
        assert lives.judge(3, ORIGINAL, now_ms) is Verdict.TAKE
        if now_ms >= 500:
            verdicts.append(lives.judge(3, COPY, now_ms))
    assert verdicts[0] is Verdict.WAIT
    assert verdicts[-1] is Verdict.FENCED
    assert Verdict.TAKE not in verdicts
    assert lives.contested(2_000) == [3]
    assert lives.contested(2_000 + CONTEST_MS) == []


def test_a_process_that_was_taken_over_from_is_fenced_for_good() -> None:
    lives = Incarnations()
    lives.judge(3, ORIGINAL, 0)
    lives.judge(3, COPY, QUIET_MS)
    assert lives.judge(3, ORIGINAL, 100 * QUIET_MS) is Verdict.FENCED
    assert lives.judge(3, COPY, 100 * QUIET_MS) is Verdict.TAKE


def test_what_was_buffered_for_a_stopped_receiver_proves_nothing() -> None:
    """The last words of a killed process and the first of the next are read in one moment, in any order."""
    lives = Incarnations()
    lives.judge(3, ORIGINAL, 0)
    for _ in range(100):
        lives.judge(3, COPY, 5_000 - 1)
        lives.judge(3, ORIGINAL, 5_000)
    verdicts = {lives.judge(3, COPY, 5_000 + after) for after in range(0, QUIET_MS, PROOF_MS)}
    assert Verdict.FENCED not in verdicts


def test_words_of_the_first_after_the_others_first_are_counted_apart() -> None:
    lives = Incarnations()
    lives.judge(3, ORIGINAL, 0)
    lives.judge(3, COPY, 1)
    for turn in range(1, PROOFS):
        lives.judge(3, ORIGINAL, 1 + turn * PROOF_MS)
        assert lives.judge(3, COPY, 1 + turn * PROOF_MS) is Verdict.WAIT
    lives.judge(3, ORIGINAL, 1 + PROOFS * PROOF_MS)
    assert lives.judge(3, COPY, 1 + PROOFS * PROOF_MS) is Verdict.FENCED


def test_nodes_do_not_disturb_each_other_and_are_bounded() -> None:
    lives = Incarnations()
    for node in range(1, NODES_MAX + 10):
        assert lives.judge(node, ORIGINAL, 0) is Verdict.TAKE
    assert lives.judge(1, COPY, 0) is Verdict.TAKE  # it gave way, so nothing is known of it
    assert lives.judge(NODES_MAX, COPY, 0) is Verdict.WAIT


def test_lives_that_are_over_are_bounded() -> None:
    lives = Incarnations()
    for life in range(1, FORMER_MAX + 5):
        assert lives.judge(3, life, life * QUIET_MS) is Verdict.TAKE
    assert lives.judge(3, FORMER_MAX + 3, 100 * QUIET_MS) is Verdict.FENCED
