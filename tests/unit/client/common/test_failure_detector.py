"""When a node that owes an answer is probed, and when others are asked."""

from __future__ import annotations

from ringfence.common.failure_detector import PROBE_S, SILENT_S, DetectorStep, FailureDetector


def steps(
    until_s: float, heard: tuple[float, ...] = (), *, waits: bool = True, hop_s: float = 0.25
) -> list[tuple[float, DetectorStep]]:
    """What looks every `hop_s` come to."""
    watched, found = FailureDetector(), list[tuple[float, DetectorStep]]()
    for look in range(int(until_s / hop_s) + 1):
        now = 100.0 + look * hop_s
        step = watched.look(now, waits=waits, heard=now - 100.0 in heard)
        if step is not DetectorStep.NOTHING:
            found.append((now - 100.0, step))
    return found


def test_a_node_that_owes_an_answer_is_probed_and_then_taken_for_silent_again_and_again() -> None:
    assert steps(6.0) == [
        (PROBE_S, DetectorStep.PROBE),
        (SILENT_S, DetectorStep.ASK_OTHERS),
        (2 * SILENT_S, DetectorStep.ASK_OTHERS),
    ]


def test_a_node_that_answers_the_probe_is_not_silent_however_long_it_holds_the_rest() -> None:
    heard = (1.25, 2.5, 3.75, 5.0, 6.25)
    assert {step for _, step in steps(6.5, heard)} == {DetectorStep.PROBE}


def test_who_waits_for_nothing_probes_nobody() -> None:
    assert steps(10.0, waits=False) == []


def test_a_client_that_stood_still_itself_begins_to_count_anew() -> None:
    watched = FailureDetector()
    looks = [watched.look(100.0 + 0.25 * look, waits=True, heard=False) for look in range(5)]
    assert looks[-1] is DetectorStep.PROBE
    assert watched.look(130.0, waits=True, heard=False) is DetectorStep.NOTHING
    assert watched.look(130.25, waits=True, heard=False) is DetectorStep.NOTHING
