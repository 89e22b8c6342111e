"""Topics through either door: the data socket of a node, or the admin API. Both give the same values."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import pyarrow as pa

from ringfence.control.cli.admin import Admin, NoMajority, topic_path
from ringfence.control.cli.connection import connected, http_meant
from ringfence.control.model.counts import known_figures, totals
from ringfence.native.errors import AlreadyExistsError, NotFoundError

if TYPE_CHECKING:
    from ringfence import Client
    from ringfence.topic_info import TopicInfo

PAGE = 500
"""Topics of one answer of the admin API."""
Topic = dict[str, Any]
"""As `--json` prints it."""
Options = dict[str, Any]
"""key, partitions, replication, retention_bytes, retention_ms, properties."""


class Door(Protocol):
    """What the commands ask for. `alone`: why that is what one node knows, not all; "": it is all."""

    alone: str

    def create(self, name: str, schema: pa.Schema, options: Options, *, exist_ok: bool) -> Topic: ...
    def topics(self, prefix: str) -> list[Topic]: ...
    def topic(self, name: str) -> Topic: ...
    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None: ...
    def delete(self, name: str, *, missing_ok: bool) -> None: ...
    def close(self) -> None: ...


def opened(address: str, http: str | None, token_file: Path | None, timeout_s: float) -> Door:
    """The admin API where `http` names it and no flag the data socket, else the data socket."""
    http = http_meant(http)
    if http is not None:
        return _Http(Admin(http, token_file, timeout_s))
    return _Socket(connected(address, timeout_s, token_file))


class _Socket:
    alone = ""

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

    def delete(self, name: str, *, missing_ok: bool) -> None:
        self._client.delete_topic(name, missing_ok=missing_ok)

    def close(self) -> None:
        self._client.close()


class _Http:
    def __init__(self, admin: Admin) -> None:
        self._admin, self.alone = admin, ""

    def create(self, name: str, schema: pa.Schema, options: Options, *, exist_ok: bool) -> Topic:
        message = base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
        created = True
        try:
            self._admin.change("POST", "/admin/topics", {"name": name, "schema_ipc": message, **options})
        except AlreadyExistsError:
            known = self.topic(name) if exist_ok else None
            if known is None or known["key"] != list(options["key"]) or known["columns"] != _columns(schema):
                raise
            created = False
        return {**self.topic(name), "created": created}

    def topics(self, prefix: str) -> list[Topic]:
        names: list[str] = []
        while True:
            after = names[-1] if names else ""
            query = f"prefix={quote(prefix)}&after={quote(after)}&limit={PAGE}"
            page = self._get(f"/admin/topics?{query}")
            names += [topic["name"] for topic in page["topics"]]
            if not page["more"]:
                return [self.topic(name) for name in names]

    def topic(self, name: str) -> Topic:
        told = self._get(f"{topic_path(name)}?")
        told["partitions"] = told.pop("stats")
        return {**told, "created": False, "quarantined": _quarantined(told["partitions"])}

    def _get(self, path: str) -> Any:
        """What no answered write is missing from; where no majority says so, what the asked node knows."""
        if not self.alone:
            try:
                return self._admin.get_if_majority(f"{path}&linearizable=true")
            except NoMajority as error:
                self.alone = str(error)
        return self._admin.get(path)

    def truncate(self, name: str, partition: int | None, before_offset: int | None) -> None:
        given = {"partition": partition, "before_offset": before_offset}
        self._admin.change("POST", f"{topic_path(name)}/truncate", given)

    def delete(self, name: str, *, missing_ok: bool) -> None:
        try:
            self._admin.change("DELETE", topic_path(name))
        except NotFoundError:
            if not missing_ok:
                raise

    def close(self) -> None:
        """Connections end with their answers."""


def _values(info: TopicInfo) -> Topic:
    """A topic of the data socket; the schema as columns, not as bytes."""
    schema = info.schemas[-1]
    parts = [known_figures(part) for part in info.partitions]
    return {
        "topic": info.topic,
        "name": info.name,
        "created": info.created,
        "version": info.version,
        "key": info.key,
        "columns": _columns(schema),
        "schemas": len(info.schemas),
        "replication": info.replication,
        "retention_bytes": info.retention_bytes,
        "retention_ms": info.retention_ms,
        "properties": info.properties,
        **totals(info),
        "quarantined": _quarantined(parts),
        "partitions": parts,
    }


def _quarantined(parts: list[dict[str, Any]]) -> int:
    """How many are, as far as their owners tell."""
    return sum(part["quarantined"] is not None for part in parts)


def _columns(schema: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
