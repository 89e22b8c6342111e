"""Consumers of real nodes: one that does not serve members says so, and nothing of it is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import ringfence
from tests.fakes.client_topic import SCHEMA, rows
from tests.harness.processes import NodeProcess


def test_a_node_that_serves_no_members_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"])
        with client.producer("t") as producer:
            producer.send(rows(0, 10))
        before = client.status().index
        with client.consumer("t", cohort="c") as consumer:
            for _ in range(2):
                with pytest.raises(ringfence.ProtocolError, match="older than cohorts"):
                    consumer.next(10)
            assert consumer.assignment() == []
        assert client.status().index == before
        assert client.count("t") == 10
