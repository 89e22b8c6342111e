"""The judge of log histories finds each anomaly that is planted, and nothing in a sound history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.checker.log_anomalies import anomalies
from tests.checker.log_history import (
    FINAL,
    Commit,
    Ends,
    Forced,
    History,
    Outcome,
    Read,
    Send,
    Truncate,
    value_of,
)

P, WRITER, KEY = 3, 1, 77


def values(*numbers: int, writer: int = WRITER) -> np.ndarray:
    return np.array([value_of(writer, number) for number in numbers], np.int64)


def send(first: int, at: float, *, rows: int = 2, offset: int = -1, outcome: Outcome = Outcome.DONE) -> Send:
    partition = P if offset >= 0 else -1
    return Send(WRITER, KEY, first, rows, at, at + 1, outcome, partition, offset)


def read(offset: int, *numbers: int, reader: str = FINAL, session: int = 0, begun: float = 100.0) -> Read:
    return Read(reader, session, P, offset, values(*numbers), begun, begun + 1)


def sound() -> History:
    """Three sends of two rows, a transaction, a follower, questions, a truncate that took nothing."""
    staged = Send(2, 5, 0, 2, 30.0, 31.0, Outcome.DONE, transaction="load-1")
    return History(
        sends=[
            send(0, 0.0, offset=0),
            send(2, 10.0, offset=2),
            send(4, 20.0, outcome=Outcome.UNKNOWN),
            staged,
        ],
        commits=[Commit("load-1", 31.0, 32.0, Outcome.DONE)],
        reads=[
            read(0, 0, 1, reader="follower", begun=1.0),
            read(2, 2, 3, reader="follower", begun=11.0),
            Read(FINAL, 0, P, 0, np.concatenate([values(0, 1, 2, 3), values(0, 1, writer=2)]), 100.0, 101.0),
        ],
        ends=[Ends(P, 0, 2, 5.0, 6.0), Ends(P, 0, 4, 12.0, 13.0)],
        truncates=[Truncate(P, 0, 50.0, 51.0, Outcome.DONE)],
    )


def kinds(history: History) -> list[str]:
    return [anomaly.kind for anomaly in anomalies(history)]


def test_a_sound_history_has_no_anomaly() -> None:
    assert anomalies(sound()) == []


def test_an_unknown_send_may_be_there_or_not() -> None:
    history = sound()
    history.reads[-1] = replace(
        history.reads[-1], values=np.concatenate([history.reads[-1].values, values(4, 5)])
    )
    assert anomalies(history) == []


def planted(name: str) -> History:
    history = sound()
    final = history.reads[-1]

    def final_is(*numbers: int) -> None:
        history.reads[-1] = replace(final, values=np.concatenate([values(*numbers), values(0, 1, writer=2)]))

    match name:
        case "lost":
            history.reads[-1] = replace(final, values=np.concatenate([values(0, 1), values(0, 1, writer=2)]))
            history.reads[1] = replace(history.reads[1], values=values())
            history.sends[1], history.ends = replace(history.sends[1], offset=90), []
        case "duplicate":
            history.reads[-1] = replace(final, values=np.concatenate([final.values, values(3)]))
        case "invented":
            history.reads[-1] = replace(final, values=np.concatenate([final.values, values(999)]))
        case "aborted read":
            history.sends.append(send(6, 40.0, outcome=Outcome.REFUSED))
            history.reads.append(read(90, 6, reader="other", begun=41.0))
        case "aborted transaction read":
            history.commits[0] = replace(history.commits[0], outcome=Outcome.REFUSED)
        case "two values":
            history.sends.append(send(6, 40.0, outcome=Outcome.UNKNOWN))
            history.reads[1] = replace(history.reads[1], values=values(2, 6))
        case "order":
            history.sends[0], history.sends[1] = replace(history.sends[0], offset=2), send(2, 10.0, offset=0)
            history.reads[:2], history.ends = [], []
            final_is(2, 3, 0, 1)
        case "partial transaction":
            history.reads[-1] = replace(
                final, values=np.concatenate([values(0, 1, 2, 3), values(0, writer=2)])
            )
            history.commits[0] = replace(history.commits[0], outcome=Outcome.UNKNOWN)
        case "skip":
            history.reads[1] = read(3, 3, reader="follower", begun=11.0)
        case "back":
            history.reads[1] = read(1, 1, 2, 3, reader="follower", begun=11.0)
        case "ends went back":
            history.ends.append(Ends(P, 0, 2, 14.0, 15.0))
        case "end below an acknowledged row":
            history.ends[1] = replace(history.ends[1], end=3)
        case "start went back":
            history.ends[:] = [Ends(P, 1, 4, 20.0, 21.0), Ends(P, 0, 4, 22.0, 23.0)]
        case "truncated and back":
            history.truncates[0] = replace(history.truncates[0], before=2)
    return history


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lost", "lost"),
        ("duplicate", "duplicate"),
        ("invented", "invented"),
        ("aborted read", "aborted read"),
        ("aborted transaction read", "aborted read"),
        ("two values", "two values"),
        ("order", "order"),
        ("partial transaction", "partial transaction"),
        ("skip", "skip"),
        ("back", "back"),
        ("ends went back", "ends went back"),
        ("end below an acknowledged row", "ends went back"),
        ("start went back", "ends went back"),
        ("truncated and back", "truncated and back"),
    ],
)
def test_a_planted_anomaly_is_found_and_nothing_else(name: str, kind: str) -> None:
    assert set(kinds(planted(name))) == {kind}


def of_a_split(*, child_first: bool, sessions: tuple[int, int] = (0, 0)) -> History:
    """Rows 0 and 1 are in a parent, rows 2 and 3 of the same key in its child; a follower reads both."""
    history = History(sends=[send(0, 0.0), send(2, 10.0)])
    parent, child = (
        Read("follower", session, partition, 0, values(*rows), 20.0, 21.0)
        for session, partition, rows in zip(sessions, (P, P + 1), ((0, 1), (2, 3)), strict=True)
    )
    history.reads = [child, parent] if child_first else [parent, child]
    history.reads += [Read(FINAL, 0, P, 0, values(0, 1), 100.0, 101.0)]
    history.reads += [Read(FINAL, 0, P + 1, 0, values(2, 3), 100.0, 101.0)]
    return history


def test_a_reader_that_is_given_a_child_before_its_parent_is_found() -> None:
    assert kinds(of_a_split(child_first=False)) == []
    assert kinds(of_a_split(child_first=True)) == ["order"]
    # A later session may begin with older rows: it began at other positions.
    assert kinds(of_a_split(child_first=True, sessions=(1, 0))) == []


def test_rows_below_the_final_log_start_are_not_lost() -> None:
    history = sound()
    history.truncates[0] = replace(history.truncates[0], before=2)
    history.reads[-1] = replace(
        history.reads[-1], offset=2, values=np.concatenate([values(2, 3), values(0, 1, writer=2)])
    )
    assert anomalies(history) == []


def test_rows_of_a_transaction_that_were_read_and_truncated_are_not_lost() -> None:
    history = sound()
    history.reads.insert(0, Read("other", 0, P, 4, values(0, 1, writer=2), 33.0, 34.0))
    history.truncates[0] = replace(history.truncates[0], before=6)
    history.reads[-1] = replace(history.reads[-1], offset=6, values=values())
    assert anomalies(history) == []


def test_an_accepted_loss_excuses_what_was_acknowledged_before_it_only() -> None:
    history = sound()
    history.forced = [Forced(P, 12.0, 15.0)]
    history.ends = []
    history.sends[2] = send(4, 20.0, offset=2)  # the offsets of rows 2 and 3 are given again
    history.reads[-1] = replace(
        history.reads[-1], values=np.concatenate([values(0, 1, 4, 5), values(0, 1, writer=2)])
    )
    history.reads[1] = replace(history.reads[1], begun=11.0, ended=11.5)
    history.sends[1] = replace(history.sends[1], begun=10.0, ended=11.0)
    assert anomalies(history) == []
    history.forced = [Forced(P, 2.0, 3.0)]
    history.reads[1] = replace(history.reads[1], ended=11.5)
    assert set(kinds(history)) == {"lost", "two values"}
