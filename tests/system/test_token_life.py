"""The life of tokens: the first one, revoked and expired ones, replaced files, and rows of replicas."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native.errors import RingfenceError, UnauthorizedError
from ringfence.native.wire import Code, Opcode
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, batch, check_identity, cli, free_port, read_ids, until
from tests.harness.raw_client import RawClient
from tests.harness.token_node import TokenNode


def test_tokens_are_asked_for_from_the_first_one_on_and_end_on_open_connections(tmp_path: Path) -> None:
    locked = TokenNode(tmp_path)
    with locked.node, contextlib.ExitStack() as stack:
        with locked.connect() as early:  # as ever: nobody is asked
            early.create_topic("t", schema=SCHEMA, key=["id"])
            held = stack.enter_context(contextlib.closing(early.read("t", follow=True, timeout_s=60)))
            locked.make("root", "admin")
            with pytest.raises(UnauthorizedError, match="HELLO had none"):
                next(iter(held))
            with pytest.raises(UnauthorizedError):
                early.count("t")
        locked.make("p", "writer")
        producing = stack.enter_context(locked.connect("p"))
        producer = producing.producer("t")
        reader = stack.enter_context(contextlib.closing(producing.read("t", follow=True, timeout_s=60)))
        rows = iter(reader)
        producer.send(batch(0, 5)).result(30)
        assert next(rows).num_rows == 5
        assert locked.token("revoke", "p").returncode == Exit.OK
        began = time.monotonic()
        with pytest.raises(UnauthorizedError, match="it was revoked, or never was"):
            producer.send(batch(5, 5)).result(30)
        with pytest.raises(UnauthorizedError, match="revoked"):
            next(rows)
        assert time.monotonic() - began < 10
        with contextlib.suppress(RingfenceError):
            producer.close()
        locked.make("short", "writer", "--expires", "2s")
        short = stack.enter_context(locked.connect("short"))
        until(lambda: _fails(short, "has expired"), 30, "the token expires on its open connection")
        # After a restart the same holds, before the first request; and the rows are there.
        locked.node.kill()
        locked.node.start()
        with pytest.raises(UnauthorizedError), locked.connect() as anybody:
            anybody.topics()
        with locked.connect("root") as root:
            assert root.count("t") == 5
        _no_secret_anywhere(locked)


def _fails(client: ringfence.Client, match: str) -> bool:
    try:
        client.status()
    except UnauthorizedError as error:
        assert match in str(error)
        return True
    return False


def _no_secret_anywhere(locked: TokenNode) -> None:
    """Neither on the node's disk nor in its log."""
    secrets = [file.read_text().strip().encode() for file in locked.files.iterdir()]
    assert len(secrets) == 3
    kept = [path for path in locked.node.data.rglob("*") if path.is_file()]
    for path in [locked.node.log, *kept]:
        content = path.read_bytes()
        assert not any(secret in content for secret in secrets), path


def test_a_token_file_is_read_at_each_connection_and_a_wrong_one_is_named_at_the_deadline(
    tmp_path: Path,
) -> None:
    locked = TokenNode(tmp_path)
    with locked.node:
        locked.make("root", "admin")
        file = locked.make("p", "writer")
        secret = file.read_text()
        with locked.connect("root") as root, locked.connect("p") as client:
            root.create_topic("t", schema=SCHEMA)
            producer = client.producer("t", timeout_s=3)
            producer.send(batch(0, 1)).result()
            file.write_text("rf_replaced_too_early\n")
            locked.node.kill()
            locked.node.start()
            with pytest.raises(RingfenceError, match="no token has this secret") as caught:
                producer.send(batch(1, 1)).result()
            assert "too_early" not in str(caught.value)
            file.write_text(secret)
            later = client.producer("t", timeout_s=60)
            later.send(batch(2, 1)).result()
            assert root.count("t") == 2
            with contextlib.suppress(RingfenceError):
                producer.close()


def test_while_the_setting_says_so_the_data_socket_asks_nobody(tmp_path: Path) -> None:
    """How a cluster gets its first tokens without a pause: clients are given theirs before it is asked."""
    from tests.harness.admin_http import ask

    locked = TokenNode(tmp_path)
    with locked.node:
        assert ask(locked.http, "PATCH", "/admin/config", {"values": {"data_tokens": 0}}).status == 200
        locked.make("root", "admin")
        bearer = {"authorization": f"Bearer {(locked.files / 'root').read_text().strip()}"}
        with locked.connect() as without, locked.connect("root") as with_token:
            assert without.topics() == with_token.topics() == []
            changed = {"values": {"data_tokens": 1}}
            assert ask(locked.http, "PATCH", "/admin/config", changed, **bearer).status == 200
            until(lambda: _fails(without, "HELLO had none"), 60, "it is asked for")
            assert with_token.topics() == []


@pytest.mark.timeout(240)
def test_with_tokens_rows_are_replicated_and_a_producer_goes_on_over_a_failover(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path)
    http = f"http://127.0.0.1:{free_port()}"
    three.nodes[0].options = (*three.nodes[0].options, "--http", http.removeprefix("http://"))
    files = {name: tmp_path / f"{name}.token" for name in ("root", "writer", "second")}

    def make(name: str, role: str) -> None:
        known = () if name == "root" else ("--token-file", str(files["root"]))
        done = cli("token", "create", name, "--role", role, "--to", str(files[name]), "--http", http, *known)
        assert done.returncode == Exit.OK, done.stderr

    try:
        three.start()
        with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6, replication=3)
            with client.producer("t") as producer:  # connections between nodes stand before there is a token
                producer.send(batch(0, 50)).result(60)
        make("root", "admin")
        make("writer", "writer")
        make("second", "admin")
        addresses = ",".join(node.address for node in three.nodes)
        load = Load(addresses, "t", 1, token_file=files["writer"]).start()
        until(lambda: len(load.acknowledged) > 500 or load.errors, 60, "rows on a quorum under tokens")
        # What nodes show each other changes with the oldest admin's token: nobody notices.
        assert (
            cli("token", "revoke", "root", "--http", http, "--token-file", str(files["root"])).returncode == 0
        )
        seen = len(load.acknowledged)
        until(lambda: len(load.acknowledged) > seen + 1_000 or load.errors, 60, "rows after a revocation")
        killed = next(place for place in (1, 2) if place != three.leader())
        three.nodes[killed].kill()
        seen = len(load.acknowledged)
        until(lambda: len(load.acknowledged) > seen + 1_000 or load.errors, 60, "rows without a node")
        three.nodes[killed].start()
        three.until_whole()
        load.finish()
        assert load.errors == []
        with ringfence.connect(
            three.nodes[killed].address, timeout_s=30, token_file=files["second"]
        ) as client:
            check_identity(read_ids(client, "t"), {1: load.acknowledged}, {0: 50, 1: load.sent})
        with pytest.raises(UnauthorizedError), ringfence.connect(three.nodes[killed].address) as client:
            client.topics()
        with RawClient(three.nodes[killed].address) as stranger:
            assert stranger.ask(Opcode.FENCE).code == Code.UNAUTHORIZED
    finally:
        three.kill_all()
