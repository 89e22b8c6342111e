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
    assert lives.evaluate(3, ORIGINAL, 0) is Verdict.ACCEPT
    assert lives.evaluate(3, COPY, QUIET_MS - 1) is Verdict.WAIT
    assert (lives.silence_ms(3, QUIET_MS), lives.silence_ms(4, QUIET_MS)) == (QUIET_MS, None)
    assert lives.evaluate(3, COPY, QUIET_MS) is Verdict.ACCEPT
    assert lives.silence_ms(3, QUIET_MS) == 0
    assert lives.contested(QUIET_MS) == []


def test_a_copy_is_fenced_while_the_original_is_heard() -> None:
    lives = Incarnations()
    verdicts = []
    for now_ms in range(0, 2_000, 50):
        assert lives.evaluate(3, ORIGINAL, now_ms) is Verdict.ACCEPT
        if now_ms >= 500:
            verdicts.append(lives.evaluate(3, COPY, now_ms))
    assert verdicts[0] is Verdict.WAIT
    assert verdicts[-1] is Verdict.FENCE
    assert Verdict.ACCEPT not in verdicts
    assert lives.contested(2_000) == [3]
    assert lives.contested(2_000 + CONTEST_MS) == []


def test_a_process_that_was_taken_over_from_is_fenced_for_good() -> None:
    lives = Incarnations()
    lives.evaluate(3, ORIGINAL, 0)
    lives.evaluate(3, COPY, QUIET_MS)
    assert lives.evaluate(3, ORIGINAL, 100 * QUIET_MS) is Verdict.FENCE
    assert lives.evaluate(3, COPY, 100 * QUIET_MS) is Verdict.ACCEPT


def test_what_was_buffered_for_a_stopped_receiver_proves_nothing() -> None:
    """The last words of a killed process and the first of the next are read in one moment, in any order."""
    lives = Incarnations()
    lives.evaluate(3, ORIGINAL, 0)
    for _ in range(100):
        lives.evaluate(3, COPY, 5_000 - 1)
        lives.evaluate(3, ORIGINAL, 5_000)
    verdicts = {lives.evaluate(3, COPY, 5_000 + after) for after in range(0, QUIET_MS, PROOF_MS)}
    assert Verdict.FENCE not in verdicts


def test_words_of_the_first_after_the_others_first_are_counted_apart() -> None:
    lives = Incarnations()
    lives.evaluate(3, ORIGINAL, 0)
    lives.evaluate(3, COPY, 1)
    for turn in range(1, PROOFS):
        lives.evaluate(3, ORIGINAL, 1 + turn * PROOF_MS)
        assert lives.evaluate(3, COPY, 1 + turn * PROOF_MS) is Verdict.WAIT
    lives.evaluate(3, ORIGINAL, 1 + PROOFS * PROOF_MS)
    assert lives.evaluate(3, COPY, 1 + PROOFS * PROOF_MS) is Verdict.FENCE


def test_nodes_do_not_disturb_each_other_and_are_bounded() -> None:
    lives = Incarnations()
    for node in range(1, NODES_MAX + 10):
        assert lives.evaluate(node, ORIGINAL, 0) is Verdict.ACCEPT
    assert lives.evaluate(1, COPY, 0) is Verdict.ACCEPT  # it gave way, so nothing is known of it
    assert lives.evaluate(NODES_MAX, COPY, 0) is Verdict.WAIT


def test_lives_that_are_over_are_bounded() -> None:
    lives = Incarnations()
    for life in range(1, FORMER_MAX + 5):
        assert lives.evaluate(3, life, life * QUIET_MS) is Verdict.ACCEPT
    assert lives.evaluate(3, FORMER_MAX + 3, 100 * QUIET_MS) is Verdict.FENCE
