"""Linearizability of a history: is there one order of all operations, true to real time, that a model allows?

START HERE. `python -m tests.checker DIR` judges every history file under a folder. For histories of our own:

    recorder = Recorder()
    ticket = recorder.invoke(process=3, call=Write(7), at=now())
    recorder.returned(ticket, result=None, at=now())         or .unknown(ticket) or .without_effect(ticket)
    verdict = check(RegisterModel(), recorder.operations())

    history     operations with their times; the recorder
    models      what a single copy would answer: register with compare-and-set, strings by key
    topics      the same of the metadata API: topics by name
    search      the search itself, one part of a history at a time
    cohorts, cohort_history  what members of a cohort were given and acknowledged, and what is wrong with it
    cohort_queue             the part of it about leases of a QUEUE
    consumed                 an exactly-once copy: its rows (CH11), and what its COMMITs settled (CH12)
    transformed              what a consumer wrote to another topic, exactly once
    jepsen, kv  two text formats of public histories
    files       which files of a folder hold a history, and in which format
"""

from tests.checker.history import UNKNOWN, Operation, Recorder
from tests.checker.models import Model, RegisterModel, StringsModel
from tests.checker.search import Outcome, Verdict, check

__all__ = [
    "UNKNOWN",
    "Model",
    "Operation",
    "Outcome",
    "Recorder",
    "RegisterModel",
    "StringsModel",
    "Verdict",
    "check",
]
