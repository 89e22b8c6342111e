"""Representations of the client's objects: short lines, schemas of pyarrow, tables in notebooks."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

import pytest

import ringfence
import ringfence.aio
from ringfence.native.wire import Code, Opcode
from tests.fakes.client_topic import SCHEMA, node_with_topic, rows, until
from tests.fakes.commit_nodes import Decided, once
from tests.fakes.socket_node import Drop, Refuse


def test_a_client_is_shown_with_its_addresses_and_without_its_token() -> None:
    client = ringfence.connect("tcp://127.0.0.1:1,tcp://127.0.0.1:2", token="secret")
    assert repr(client) == "<ringfence.Client tcp://127.0.0.1:1,tcp://127.0.0.1:2>"
    client.close()
    assert repr(client) == "<ringfence.Client tcp://127.0.0.1:1,tcp://127.0.0.1:2, closed>"


def test_a_topic_has_schemas_and_is_shown_as_a_line_and_as_a_table() -> None:
    with node_with_topic(partitions=2) as (_, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 7))
        (listed,) = client.topics()
        for info in (client.topic("t"), listed):
            assert info.schemas == [SCHEMA]
            key = f"key {', '.join(info.key)}" if info.key else "no key"
            line = f"TopicInfo public/default/t: 2 partitions, 7 rows, {key}, replication {info.replication}"
            assert (repr(info), info.rows) == (f"<{line}>", 7)
            shown = info._repr_html_()
            assert shown.startswith(f"<p>{line}</p><table><tr><th>partition</th>")
            assert shown.count("<tr>") == 3
            assert re.findall("<tr><td>([0-9]+)</td>", shown) == [
                str(part.partition) for part in info.partitions
            ]


def test_a_text_of_the_topic_is_no_markup() -> None:
    with node_with_topic(partitions=1) as (_, client):
        client.create_topic("k", schema=SCHEMA.append(SCHEMA.field(0).with_name("<b>")), key=["<b>"])
        shown = client.topic("k")._repr_html_()
        assert "key &lt;b&gt;" in shown
        assert "<b>" not in shown


def test_producer_future_and_reader_are_shown_with_their_state() -> None:
    with node_with_topic(partitions=1) as (node, client):
        producer = client.producer("t", name="loader")
        of = "<ringfence.Producer of public/default/t named 'loader'"
        assert repr(producer) == f"{of}: 0 sends pending, 0 failed>"
        done = producer.send(rows(0, 3))
        assert done.result(10)
        assert repr(done) == "<SendFuture 1: 3 rows stored in 1 batches>"
        node.hook = lambda header: Drop(served=False) if header.opcode == Opcode.PUBLISH else None
        lost = producer.send(rows(3, 2))
        assert repr(lost) == "<SendFuture 2: pending>"
        assert repr(producer) == f"{of}: 1 sends pending, 0 failed>"
        until(lambda: bool(node.sent(Opcode.PUBLISH)))
        with pytest.raises(ringfence.RingfenceError) as ended:
            producer.close(timeout_s=0)
        assert repr(producer) == f"{of}: closed, 1 failed>"
        assert repr(lost) == f"<SendFuture 2: {type(ended.value).__name__}: {ended.value.message}>"
        reader = client.read("t")
        assert repr(reader) == "<ringfence.Reader of public/default/t: 1 partitions>"
        next(reader)
        (partition,) = (position.partition for position in reader.positions())
        last = f"1 partitions, last batch: partition {partition}, offset 0"
        assert repr(reader) == f"<ringfence.Reader of public/default/t: {last}>"
        assert list(reader) == []
        assert repr(reader) == f"<ringfence.Reader of public/default/t: {last}, at its end>"


def test_a_transaction_is_shown_with_its_scope_and_outcome() -> None:
    of = "<ringfence.Transaction of t, scope 's', epoch 1"
    with Decided(own=True) as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=[], partitions=1)
        done = client.transaction("t", scope="s")
        assert repr(done) == f"{of}: open>"
        done.commit()
        assert repr(done) == f"{of}: ended, no rows committed>"
        done.rows = 5  # as a commit of this block's rows sets it
        assert repr(done) == f"{of}: 5 rows committed>"
    with Decided(own=False) as node, ringfence.connect(node.address, timeout_s=10) as client:
        repeated = client.transaction(scope="s", epoch=1)
        repeated.commit()
        assert repr(repeated) == "<ringfence.Transaction, scope 's', epoch 1: committed before>"
    with Decided(own=None, hook=once(Refuse(Code.STOPPING, 20))) as node:
        client = ringfence.connect(node.address, timeout_s=10)
        unknown = client.transaction(scope="s")
        with pytest.raises(ringfence.UnknownOutcomeError):
            unknown.commit()
        assert repr(unknown) == "<ringfence.Transaction, scope 's', epoch 1: outcome unknown>"
        client.close()


def test_objects_of_asyncio_are_shown_like_the_others() -> None:
    async def work(address: str) -> None:
        async with ringfence.aio.connect(address) as client:
            assert repr(client) == f"<ringfence.aio.Client {address}>"
            async with client.producer("t") as producer:
                of = "<ringfence.aio.Producer of public/default/t"
                assert repr(producer) == f"{of}: 0 sends pending, 0 failed>"
                await producer.send(rows(0, 3))
            assert repr(producer) == f"{of}: closed, 0 failed>"
            reader = client.read("t")
            assert repr(reader) == "<ringfence.aio.Reader of t>"
            await anext(reader)
            assert reader.place is not None
            last = f"last batch: partition {reader.place.partition}, offset 0"
            assert repr(reader) == f"<ringfence.aio.Reader of t: {last}>"

    with node_with_topic(partitions=1) as (node, _):
        asyncio.run(work(node.address))
    with Decided(own=True) as node, ringfence.connect(node.address, timeout_s=10) as client:
        transaction = ringfence.aio.Transaction(client.transaction(scope="s"))
        assert repr(transaction) == "<ringfence.aio.Transaction, scope 's', epoch 1: open>"


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ringfence", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ,
    )
    assert re.search("[0-9]+[.][0-9]+[.][0-9]+", done.stdout)
