"""Access topics through a node's data socket or the admin API. Both return the same values."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import pyarrow as pa

from ringfence.control.cli.admin import Admin, NoMajority, topic_path
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.endpoint import Endpoint
from ringfence.control.model.counts import known_figures, totals
from ringfence.native.errors import AlreadyExistsError, NotFoundError

if TYPE_CHECKING:
    from ringfence import Client
    from ringfence.topic_info import TopicInfo

# A topic with the keys that `--json` prints.
Topic = dict[str, Any]
# key, partitions, replication, retention_bytes, retention_ms, properties.
Options = dict[str, Any]


class TopicApi(Protocol):
    """The interface of the `topic` commands.

    `stale_reason`: why the values are those of one node and may be stale; empty if they are linearizable.
    """

    stale_reason: str

    def create(self, name: str, schema: pa.Schema, options: Options, *, exist_ok: bool) -> Topic: ...
    def topics(self, prefix: str) -> list[Topic]: ...
    def topic(self, name: str) -> Topic: ...
    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None: ...
    def delete(self, name: str, *, missing_ok: bool, force: bool = False) -> None: ...
    def close(self) -> None: ...


def open_topic_api(endpoint: Endpoint) -> TopicApi:
    """Return the admin API if `http` names one and no flag `--address` is passed, else the data socket."""
    if endpoint.http is not None:
        return _Http(endpoint.admin())
    assert endpoint.address is not None, "commands about topics have --address, with a default"
    return _Socket(open_client(endpoint.address, endpoint.timeout_s, endpoint.token_file))


class _Socket:
    stale_reason = ""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str, schema: pa.Schema, options: Options, *, exist_ok: bool) -> Topic:
        return _values(self._client.create_topic(name, schema=schema, exist_ok=exist_ok, **options))

    def topics(self, prefix: str) -> list[Topic]:
        return [_values(info) for info in self._client.topics(prefix=prefix)]

    def topic(self, name: str) -> Topic:
        return _values(self._client.topic(name))

    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None:
        self._client.truncate(name, partition=partition, before_offset=before_offset)

    def delete(self, name: str, *, missing_ok: bool, force: bool = False) -> None:
        self._client.delete_topic(name, missing_ok=missing_ok, force=force)

    def close(self) -> None:
        self._client.close()


class _Http:
    def __init__(self, admin: Admin) -> None:
        self._admin, self.stale_reason = admin, ""

    def create(self, name: str, schema: pa.Schema, options: Options, *, exist_ok: bool) -> Topic:
        message = base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
        created = True
        try:
            self._admin.change("POST", "/admin/topics", {"name": name, "schema_ipc": message, **options})
        except AlreadyExistsError:
            topic = self.topic(name) if exist_ok else None
            if topic is None or topic["key"] != list(options["key"]) or topic["columns"] != _columns(schema):
                raise
            created = False
        return {**self.topic(name), "created": created}

    def topics(self, prefix: str) -> list[Topic]:
        shown: list[Topic] = []
        while True:
            after = shown[-1]["name"] if shown else ""
            page = self._get(f"/admin/topics?stats=true&prefix={quote(prefix)}&after={quote(after)}")
            # A node with an older program ignores `stats`.
            shown += [
                _shown(topic) if "stats" in topic else self.topic(topic["name"]) for topic in page["topics"]
            ]
            if not page["more"]:
                return shown

    def topic(self, name: str) -> Topic:
        return _shown(self._get(f"{topic_path(name)}?"))

    def _get(self, path: str) -> Any:
        """Read linearizably; if no majority answers, read the state of one node."""
        if not self.stale_reason:
            try:
                return self._admin.get_if_majority(f"{path}&linearizable=true")
            except NoMajority as error:
                self.stale_reason = str(error)
        return self._admin.get(path)

    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None:
        values = {"partition": partition, "before_offset": before_offset}
        self._admin.change("POST", f"{topic_path(name)}/truncate", values)

    def delete(self, name: str, *, missing_ok: bool, force: bool = False) -> None:
        try:
            self._admin.change("DELETE", f"{topic_path(name)}{'?force=true' if force else ''}")
        except NotFoundError:
            if not missing_ok:
                raise

    def close(self) -> None:
        """Do nothing: each request has its own connection."""


def _shown(topic: Topic) -> Topic:
    """Return a topic of the admin API with the keys of `Topic`."""
    topic["partitions"] = topic.pop("stats")
    return {**topic, "created": False, "quarantined": _quarantined_count(topic["partitions"])}


def _values(info: TopicInfo) -> Topic:
    """Return a topic of the data socket with its schema as columns instead of bytes."""
    schema = info.schemas[-1]
    parts = [known_figures(part) for part in info.partitions]
    return {
        "topic": info.topic,
        "name": info.name,
        "created": info.created,
        "version": info.version,
        "key": info.key,
        "columns": _columns(schema),
        "schemas": len(info.schema_messages),
        "replication": info.replication,
        "retention_bytes": info.retention_bytes,
        "retention_ms": info.retention_ms,
        "properties": info.properties,
        **totals(info),
        "quarantined": _quarantined_count(parts),
        "partitions": parts,
    }


def _quarantined_count(parts: list[dict[str, Any]]) -> int:
    """Count the quarantined partitions of the owners that answered."""
    return sum(part["quarantined"] is not None for part in parts)


def _columns(schema: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
