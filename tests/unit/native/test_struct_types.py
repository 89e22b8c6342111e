"""Threads may decode messages immediately: their types are complete when their modules are imported.

Each program here is a process of its own: a type that one test has decoded is complete for all later ones.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from ringfence.native.messages import Hello, Ready
from ringfence.native.struct_types import prepare_types

MEANWHILE = """
import sys, threading
from ringfence.native.messages import PartitionEntry, Table, decode, encode

entry = PartitionEntry(partition=1, lo=0, hi=65535, state="ACTIVE", owner=1, epoch=1)
body = encode(Table(topic=1, name="t", history=b"", generation=1, version=1, key=[], schemas=[],
                    replication=1, partitions=[entry], nodes=[]))


def in_another_thread(frame, event, _):
    # msgspec reads the fields of an entry.
    if event == "call" and frame.f_locals.get("obj") is PartitionEntry:
        sys.setprofile(None)
        other = threading.Thread(target=decode, args=(Table, body))
        other.start()
        other.join(5.0)


sys.setprofile(in_another_thread)
table = decode(Table, body)
sys.setprofile(None)
print(table.partitions[0].partition)
"""
UNREAD = """
import importlib, pkgutil, sys
from pathlib import Path
import ringfence.native
from ringfence.control.state_machines.rebalance.run_rates import Windows
from ringfence.native.messages import Message
from ringfence.native.struct_types import prepare_types

for module in pkgutil.iter_modules(ringfence.native.__path__):
    if module.name != "gen_wire":
        importlib.import_module(f"ringfence.native.{module.name}")


def kinds_of(base):
    return [base, *(kind for child in base.__subclasses__() for kind in kinds_of(child))]


def reads_fields(kind):
    calls = []

    def note(frame, event, _):
        if event == "call" and "msgspec" in Path(frame.f_code.co_filename).parts:
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    prepare_types(kind)
    sys.setprofile(None)
    return bool(calls)


class New(Message):
    field: int


assert reads_fields(New), "this program sees it"
kinds = [kind for kind in [*kinds_of(Message), Windows] if kind is not New]
print(len(kinds), *(kind for kind in kinds if reads_fields(kind)))
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_thread_that_decodes_while_another_one_decodes_the_first_message_does_not_crash() -> None:
    assert run(MEANWHILE) == "1\n"


def test_no_message_is_left_whose_fields_the_first_decode_has_to_read() -> None:
    count, *unread = run(UNREAD).split(maxsplit=1)
    assert unread == []
    assert int(count) > 40, "it looks at all of them"


def test_a_type_that_msgspec_cannot_decode_is_told_at_the_import() -> None:
    with pytest.raises(TypeError, match="union"):
        prepare_types(Hello | Ready)
