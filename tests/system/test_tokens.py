"""Tokens on the data socket of real nodes: who may do what, from Python, by hand, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.model.tokens import RANKS, RIGHTS, Role
from ringfence.native import cluster_messages, messages, wire
from ringfence.native.errors import AlreadyExistsError, ConfigError, UnauthorizedError
from ringfence.native.wire import Code, Opcode, Right, Status
from tests.harness.processes import PROGRAM, SCHEMA, batch, cli
from tests.harness.raw_client import RawClient
from tests.harness.token_node import TokenNode


@pytest.fixture(scope="module")
def locked(module_folder: Path) -> Iterator[TokenNode]:
    """One node for all that changes nothing of its tokens; a topic `t` with ten rows."""
    made = TokenNode(module_folder)
    with made.node:
        made.make("root", "admin")
        for role in ("viewer", "writer", "operator"):
            made.make(role, role)
        made.make("sales", "writer", "--prefix", "acme/sales/")
        made.make("rival", "writer", "--prefix", "rival/")
        made.make("steward", "operator", "--prefix", "acme/sales/")
        with made.connect("operator") as client:
            for name in ("t", "acme/sales/orders", "acme/hr/people"):
                client.create_topic(name, schema=SCHEMA, key=["id"], partitions=2)
            with client.producer("t") as producer:
                producer.send(batch(0, 10)).result()
        yield made


def send(client: ringfence.Client, topic: str = "t") -> None:
    with client.producer(topic) as producer:
        producer.send(batch(100, 1)).result()


def commit(client: ringfence.Client) -> None:
    with client.transaction("t", scope="tokens") as transaction:
        transaction.send(batch(200, 1))


ASKED: dict[str, tuple[Right, Callable[[ringfence.Client], Any]]] = {
    "status": (Right.READ, lambda client: client.status()),
    "topics": (Right.READ, lambda client: client.topics()),
    "read": (Right.READ, lambda client: list(client.read("t"))),
    "send": (Right.WRITE, send),
    "transaction": (Right.WRITE, commit),
    "create": (Right.MANAGE, lambda client: client.create_topic("made", schema=SCHEMA)),
    "truncate": (Right.MANAGE, lambda client: client.truncate("made")),
    "delete": (Right.MANAGE, lambda client: client.delete_topic("made")),
}


@pytest.mark.parametrize("role", [*(role for role in Role if role is not Role.CONSUMER), None])
def test_each_role_may_do_what_it_is_for_and_nothing_else(locked: TokenNode, role: Role | None) -> None:
    # `consumer` is tested with cohorts: tests/system/cohorts/test_member_tokens.py.
    name = None if role is None else "root" if role is Role.ADMIN else str(role)
    with locked.connect(name) as client:
        for what, (right, ask) in ASKED.items():
            if role is not None and RIGHTS[role] & right:
                ask(client)
                continue
            with pytest.raises(UnauthorizedError) as caught:
                ask(client)
            least = min((known for known in Role if RIGHTS[known] & right), key=RANKS.__getitem__)
            assert not caught.value.retriable
            assert role is None or f"--role {least}" in str(caught.value), (what, caught.value)
            assert role is None or f'has not the right "{right.name.lower()}"' in str(caught.value)


def test_the_audit_log_tells_who_changed_a_topic_at_a_data_address(locked: TokenNode) -> None:
    name, wider = "acme/hr/audited", SCHEMA.append(pa.field("more", pa.int32()))
    with locked.connect("operator") as client:
        for _ in range(2):  # the second one changes nothing, and leaves no line
            client.create_topic(name, schema=SCHEMA, key=["id"], exist_ok=True)
        with pytest.raises(AlreadyExistsError):
            client.create_topic(name, schema=SCHEMA)
        for _ in range(2):
            client.add_schema(name, wider)
        client.truncate(name)
        client.delete_topic(name)
    file = locked.node.data / "audit" / "audit.log"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [line for line in lines if line["path"] == f"topic/{name}"]
    assert [(line["action"], line["status"]) for line in told] == [
        ("topic create", 200),
        ("topic create", 409),
        ("schema add", 200),
        ("topic truncate", 200),
        ("topic delete", 200),
    ]
    assert {(line["method"], line["who"], line["role"]) for line in told} == {
        ("DATA", "operator", "operator")
    }
    done = [line["index"] for line in told if line["status"] == 200]
    assert sorted(set(done)) == done, "each behind the one before"


def test_a_token_that_is_none_is_refused_at_once_and_told_nowhere(
    locked: TokenNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RINGFENCE_TOKEN", raising=False)
    secret = "rf_" + "wrong" * 9
    began = time.monotonic()
    with (
        pytest.raises(UnauthorizedError, match="no token has this secret") as caught,
        ringfence.connect(locked.node.address, token=secret) as client,
    ):
        client.topics()
    with pytest.raises(UnauthorizedError, match="HELLO had none"), locked.connect() as client:
        client.topics()
    assert time.monotonic() - began < 10, "it was not tried again and again"
    shown = [str(caught.value), repr(client), repr(vars(client)), locked.node.log.read_text()]
    assert not any("wrongwrong" in text for text in shown)
    monkeypatch.setenv("RINGFENCE_TOKEN", (locked.files / "viewer").read_text())
    with ringfence.connect(locked.node.address) as client:
        assert client.status().state == "serving"
    for unsound in ("x" * 257, "two words", "\u00fc", "a\nb"):
        with pytest.raises(ConfigError) as error:
            ringfence.connect(locked.node.address, token=unsound)
        assert unsound not in str(error.value)
    with pytest.raises(ConfigError, match="No such file"):
        ringfence.connect(locked.node.address, token_file=tmp_path / "none")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        ringfence.connect(locked.node.address, token_file=tmp_path / "empty")
    with pytest.raises(ConfigError, match="looks like a token") as given:
        ringfence.connect(locked.node.address, token_file=secret)  # Spark would log it with the job's error
    assert "wrongwrong" not in str(given.value)


def test_a_prefix_holds_on_the_data_socket(locked: TokenNode) -> None:
    with locked.connect("sales") as client:
        send(client, "acme/sales/orders")
        assert client.count("acme/sales/orders") == 1
        assert [topic.name for topic in client.topics()] == ["acme/sales/orders"]
        assert [topic.name for topic in client.topics("acme/")] == ["acme/sales/orders"]
        assert client.topics("public/") == []
        for ask in (
            lambda: client.producer("t"),
            lambda: client.topic("acme/hr/people"),
            lambda: list(client.read("acme/hr/people")),
            lambda: client.count("t"),
        ):
            with pytest.raises(UnauthorizedError, match="acme/sales/"):
                ask()


def test_a_prefix_uses_no_scope_of_another_tenant_and_is_told_no_loads(locked: TokenNode) -> None:
    with locked.connect("root") as root:
        people = root.topic("acme/hr/people").topic
        theirs = root.scopes.begin("payroll", topic="acme/hr/people")
        whole = root.scopes.begin("of-the-cluster")
    with RawClient(locked.node.address) as raw:
        credential = (locked.files / "sales").read_text().strip()
        hello = messages.Hello(version_min=1, version_max=1, client="raw", credential=credential)
        assert raw.control(Opcode.HELLO, hello).status == Status.READY
        for begun in (theirs, whole):
            expire = cluster_messages.ScopeExpire(scope_id=begun.scope, epoch=1)
            assert raw.control(Opcode.EXPIRE, expire).code == Code.UNAUTHORIZED
            empty = cluster_messages.ScopeCommit(
                scope_id=begun.scope, driver=begun.driver, epoch=1, tokens=[]
            )
            assert raw.control(Opcode.COMMIT, empty).code == Code.UNAUTHORIZED
        for name in (f"payroll@{people}", "of-the-cluster"):
            refused = raw.control(Opcode.BEGIN, cluster_messages.ScopeBegin(scope=name))
            assert refused.code == Code.UNAUTHORIZED, name
    with locked.connect("sales") as client:
        for topic in ("acme/sales/orders", None):
            with client.transaction(topic, scope="of-sales") as transaction:
                transaction.send(batch(300, 1), topic="acme/sales/orders")
        status = client.status()
        assert (status.topics, status.partitions, status.counters) == (1, 2, {})
    with locked.connect("root") as root:
        assert root.scopes.begin("payroll", topic="acme/hr/people").decided == 0
        assert root.status().counters


def test_no_request_of_the_data_socket_reaches_another_tenants_topic(locked: TokenNode) -> None:
    """Every opcode of a client, with the other tenant's topic, or its partition under an own topic."""
    foreign, own = "acme/hr/people", "acme/sales/orders"
    with locked.connect("root") as root:
        people, orders = root.topic(foreign), root.topic(own)
    partition = people.partitions[0].partition
    wide = SCHEMA.append(pa.field("more", pa.int64())).serialize().to_pybytes()
    in_bodies: dict[Opcode, messages.Message] = {
        Opcode.TOPIC_CREATE: messages.TopicCreate(name="acme/hr/new", schema=wide, key=["id"], partitions=1),
        Opcode.TOPIC_DESCRIBE: messages.TopicName(name=foreign),
        Opcode.TOPIC_TRUNCATE: messages.TopicTruncate(name=foreign),
        Opcode.TOPIC_DELETE: messages.TopicName(name=foreign),
        Opcode.SCHEMA_ADD: messages.SchemaAdd(name=foreign, schema=wide),
        Opcode.PRODUCER_OPEN: messages.ProducerOpen(topic=foreign),
        Opcode.BEGIN: cluster_messages.ScopeBegin(scope=f"x@{people.topic}"),
    }
    narrowed = {Opcode.TOPIC_LIST, Opcode.STATUS}  # told of the own topics alone, as other tests hold
    by_scope = {Opcode.COMMIT, Opcode.EXPIRE}  # as another test holds
    with RawClient(locked.node.address) as raw:
        credential = (locked.files / "steward").read_text().strip()
        hello = messages.Hello(version_min=1, version_max=1, client="raw", credential=credential)
        assert raw.control(Opcode.HELLO, hello).status == Status.READY
        for opcode, right in wire.RIGHTS.items():
            if right is Right.NODE or opcode in narrowed | by_scope:
                continue
            if opcode in in_bodies:
                assert raw.control(opcode, in_bodies[opcode]).code == Code.UNAUTHORIZED, opcode
                continue
            theirs = raw.ask(opcode, topic=people.topic, partition=partition)
            assert (theirs.status, theirs.code) == (Status.REFUSED, Code.UNAUTHORIZED), opcode
            for topic in (orders.topic, 0):
                if (opcode, topic) != (Opcode.TABLE, orders.topic):
                    crossed = raw.ask(opcode, topic=topic, partition=partition)
                    assert crossed.status in {Status.REFUSED, Status.REDIRECT}, (opcode, topic, crossed)


def test_a_tenant_that_begins_many_scopes_lets_no_epoch_of_another_be_stored_twice(locked: TokenNode) -> None:
    def limit_scopes(most: int) -> None:
        known = ("--http", locked.http, "--token-file", str(locked.files / "root"))
        done = cli("config", "set", f"scopes_max={most}", *known)
        assert done.returncode == Exit.OK, done

    def nightly() -> bool:
        with (
            locked.connect("sales") as client,
            client.transaction("acme/sales/orders", scope="nightly", epoch=7) as transaction,
        ):
            if not transaction.already:
                transaction.send(batch(700, 5))
            return transaction.already

    limit_scopes(16)
    try:
        assert not nightly()
        with RawClient(locked.node.address) as raw:
            credential = (locked.files / "rival").read_text().strip()
            hello = messages.Hello(version_min=1, version_max=1, client="raw", credential=credential)
            assert raw.control(Opcode.HELLO, hello).status == Status.READY
            flood = [
                raw.control(Opcode.BEGIN, cluster_messages.ScopeBegin(scope=f"flood-{number}"))
                for number in range(40)
            ]
        refused = [answer for answer in flood if answer.status != Status.OK]
        assert 24 < len(refused) < 40
        assert {answer.code for answer in refused} == {Code.OVERLOADED}
        assert nightly(), "the epoch is known, and nothing is stored again"
        with locked.connect("writer", timeout_s=2) as client:
            with pytest.raises(ringfence.RingfenceError, match="ringfence scope forget NAME"):
                client.scopes.begin("of-writer")
            known = ("--http", locked.http, "--token-file", str(locked.files / "operator"))
            listed = [json.loads(line) for line in cli("scope", "list", "--json", *known).stdout.splitlines()]
            assert {"flood-0", "flood-1"} < {each["name"] for each in listed if each["owner"] == "rival/"}
            done = cli("scope", "forget", "flood-0", "--yes", *known)
            assert (done.returncode, done.stdout) == (Exit.OK, "flood-0 forgotten\n"), done
            client.scopes.begin("of-writer")
            done = cli("scope", "forget", "of-writer", "--yes", *known)
            assert done.returncode == Exit.OK, done
        gone = cli("scope", "forget", "flood-0", "--yes", *known)
        assert gone.returncode == Exit.REFUSED, gone
        assert "no scope is named 'flood-0'" in gone.stderr
    finally:
        limit_scopes(4_096)


def test_a_name_that_is_given_back_fences_its_holder_and_begins_again(locked: TokenNode) -> None:
    known = ("--http", locked.http, "--token-file", str(locked.files / "operator"))
    topic = "acme/hr/people"
    with locked.connect("writer") as client:
        holder = client.producer(topic, name="loader")
        holder.send(batch(400, 10), number=1).result(15)
        listed = cli("producer", "list", topic, "--json", *known)
        assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == ["loader"], listed
        done = cli("producer", "forget", topic, "loader", "--yes", *known)
        assert (done.returncode, done.stdout) == (Exit.OK, "loader forgotten\n"), done
        with pytest.raises(ringfence.FencedError):
            holder.send(batch(410, 10), number=2).result(15)
        with pytest.raises(ringfence.FencedError):
            holder.close()
        assert client.count(topic) == 10
        with client.producer(topic, name="loader") as fresh:
            assert fresh.resume == {}
            fresh.send(batch(410, 10), number=1).result(15)
        again = cli("producer", "forget", topic, "nobody", "--yes", *known)
        assert again.returncode == Exit.REFUSED, again
        assert "no producer named 'nobody'" in again.stderr


def test_a_client_that_was_written_from_the_protocol_alone_shows_its_token(locked: TokenNode) -> None:
    def hello(client: RawClient, credential: Any) -> Any:
        body = messages.encode(
            messages.Hello(version_min=1, version_max=1, client="raw", credential=credential)
        )
        return client.ask(Opcode.HELLO, body, flags=wire.RequestFlags.CONTROL)

    with RawClient(locked.node.address) as client:
        for opcode in wire.RIGHTS:  # before HELLO nothing is served
            answer = client.ask(opcode, b"\x80", flags=wire.RequestFlags.CONTROL)
            assert answer.code == Code.UNAUTHORIZED, opcode
        refused = hello(client, "guessed")
        assert (refused.status, refused.code) == (Status.REFUSED, Code.UNAUTHORIZED)
        assert refused.read(messages.Refused).details["right"] == 0
        too_long = hello(client, "x" * 257)
        assert too_long.code == Code.BAD_BODY
        ready = hello(client, (locked.files / "viewer").read_text().strip())
        assert ready.status == Status.READY
        assert ready.read(messages.Ready).credential_needed
        assert client.ask(Opcode.STATUS).status == Status.OK
        publish = client.ask(Opcode.PUBLISH, b"\x80")
        assert publish.code == Code.UNAUTHORIZED
        assert publish.read(messages.Refused).details["right"] == Right.WRITE
        assert client.ask(Opcode.REPLICATE).code == Code.UNAUTHORIZED, "no role may pass for a node"


def test_the_command_line_takes_a_file_or_the_environment_and_no_argument(locked: TokenNode) -> None:
    def run(*arguments: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RINGFENCE_ADDRESS": locked.node.address}
        environment.pop("RINGFENCE_TOKEN", None)
        if token is not None:
            environment["RINGFENCE_TOKEN"] = token
        command = [str(PROGRAM), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    viewer = locked.files / "viewer"
    read = ("read", "t", "--json", "--limit", "1")
    assert run(*read).returncode == Exit.REFUSED
    assert run(*read, "--token-file", str(viewer)).returncode == Exit.OK
    assert run(*read, token=viewer.read_text()).returncode == Exit.OK
    wrong = run(*read, token="rf_wrong")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (Exit.REFUSED, 1)
    assert "no token has this secret" in wrong.stderr
    assert "rf_wrong" not in wrong.stderr
    made = run("topic", "create", "by-viewer", "--column", "id:int64", "--token-file", str(viewer))
    assert made.returncode == Exit.REFUSED, made
    assert "--role operator" in made.stderr
    assert run("status", "--token-file", str(viewer)).returncode == Exit.OK
    assert run(*read, "--token", "rf_x").returncode == Exit.USAGE
