"""Load the settings of a node: defaults, a TOML file, RINGFENCE_* variables, flags. Later sources win.

Unknown keys are errors in every source: a misspelt limit that is ignored would be no limit.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ringfence.common.address import with_scheme
from ringfence.control.runtime.process.sizes import parse_size
from ringfence.control.state_machines.metadata.config import WEIGHT_MAX
from ringfence.native.errors import ConfigError
from ringfence.native.wire import DEADLINE_MS_MAX, MESSAGE_BYTES_MAX

PREFIX: Final = "RINGFENCE_"
# Variables of the client, the tests and the command line; not settings of a node.
OTHER_VARIABLES: Final = frozenset(
    {
        "RINGFENCE_ADDRESS",
        "RINGFENCE_ADMIN",
        "RINGFENCE_TOKEN",
        "RINGFENCE_DATA",
        "RINGFENCE_CONFIG",
        "RINGFENCE_DEBUG",
    }
)
LISTEN_DEFAULT: Final = "tcp://127.0.0.1:7411"


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _as_tcp(value: object) -> object:
    """A bare HOST:PORT as a tcp:// address. Other values are returned: a node's start refuses them."""
    return with_scheme(value.strip(), "tcp") if isinstance(value, str) else value


def _split_as_tcp(value: object) -> object:
    """Addresses of a text with commas or of a list; an item of a list is split, too, unless it is a path."""
    items = _split(value)
    if not isinstance(items, list | tuple):
        return items
    is_path = [isinstance(item, str) and item.startswith("ipc://") for item in items]
    parts = [[item] if path else _split(item) for item, path in zip(items, is_path, strict=True)]
    return [_as_tcp(one) for part in parts for one in (part if isinstance(part, list) else [part])]


def _without_http(value: object) -> object:
    """HOST:PORT of http://HOST:PORT; other values are returned."""
    return value.strip().removeprefix("http://").removesuffix("/") if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(parse_size)]
Address = Annotated[str, BeforeValidator(_as_tcp)]
Addresses = Annotated[tuple[str, ...], BeforeValidator(_split_as_tcp)]
HttpAddress = Annotated[str, BeforeValidator(_without_http)]


def _setting(default: Any, text: str, **bounds: Any) -> Any:
    return Field(default, description=text, **bounds)


# Overhead of a segment file with one body: file header, record header, directory, padding; at most 13 KiB.
SEGMENT_OVERHEAD_BYTES: Final = 65_536
# A hundred years, which means never; added to any clock it stays far below 64 bits.
PRODUCER_EXPIRY_MS_MAX: Final = 100 * 366 * 86_400_000


class Settings(BaseSettings):
    """Each description names the setting's meaning, its unit, and the reason for the default."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, enable_decoding=False, validate_default=True
    )

    data_dir: Path = _setting(
        ...,
        "directory of the store; an empty or absent one becomes a new store. No default: choose the disk "
        "for the rows",
    )
    listen: Addresses = _setting(
        (LISTEN_DEFAULT,),
        "addresses to bind, tcp://HOST:PORT, HOST:PORT or ipc://PATH; loopback, because rows travel "
        "unencrypted",
    )
    advertise: Addresses = _setting(
        (), "addresses for clients, if they differ from the bound ones (behind a NAT, or bound to 0.0.0.0)"
    )
    insecure: bool = _setting(
        default=False, text="allow addresses off loopback, without encryption; off: this needs a decision"
    )
    control: Address | None = _setting(
        None,
        "address for other nodes, tcp://HOST:PORT or HOST:PORT; none: a single node that no other node can "
        "join; with --join: the last one, or a free port of loopback",
    )
    join: Addresses = _setting(
        (), "control addresses of nodes of a cluster; a node with an empty data directory joins that cluster"
    )
    zone: str = _setting(
        "", "failure domain of this node, such as a rack; replicas and partitions are spread over zones"
    )
    weight: int | None = _setting(
        None,
        "share of partitions relative to other nodes: 200 gets twice as many as 100, the weight of a new "
        "node; none: unchanged. A start reports a change to the cluster; the next rebalance uses it",
        ge=1,
        le=WEIGHT_MAX,
    )
    nodes_min: int = _setting(
        1,
        "members that a new cluster needs before its first topic; 1: its first node serves alone. Only the "
        "first start of the first node reads it; after that the metadata has the value",
        ge=1,
        le=1_000,
    )
    journal_bytes: Size = _setting(
        8 << 20,
        "bytes of the metadata journal above which it is compacted; replaying 8 MiB takes a second",
        ge=16 << 10,
        le=1 << 30,
    )
    http: HttpAddress | None = _setting(
        None,
        "address of the admin API, health and metrics, HOST:PORT or http://HOST:PORT; none, because it "
        "doubles a start's imports",
    )
    shards: int = _setting(
        1,
        "writer threads, each with its own files; 1, because one fdatasync then covers all partitions",
        ge=1,
        le=64,
    )
    budget_bytes: Size = _setting(
        512 << 20,
        "bytes of memory for bodies in progress; 512 MiB fits 8 of the largest batches",
        ge=16 << 20,
        le=1 << 40,
    )
    segment_bytes: Size = _setting(
        256 << 20,
        "bytes of one segment file; 256 MiB is preallocated quickly and recycled often",
        ge=1 << 20,
        le=64 << 30,
    )
    message_bytes: Size = _setting(
        MESSAGE_BYTES_MAX,
        "bytes of the largest accepted body, at most 7/16 of the budget and what fits a segment; must be "
        "equal on all nodes, as the budget and the segment size",
        ge=4096,
        le=MESSAGE_BYTES_MAX,
    )
    connections_max: int = _setting(
        4096, "concurrent connections; each costs a descriptor and a few KiB", ge=1, le=1 << 20
    )
    transport: Literal["native", "libzmq"] = _setting(
        "native",
        "implementation of ZMTP: native (epoll, receives into aligned blocks), or libzmq as the reference",
    )
    direct: bool = _setting(
        default=True,
        text="O_DIRECT where the file system allows it; a buffered log is slower and fills the page cache",
    )
    reserve_bytes: Size = _setting(
        64 << 20,
        "bytes of disk reserved for control records when the disk is full; 64 MiB are 100,000 records",
        ge=0,
        le=1 << 40,
    )
    producers_max: int = _setting(
        65_536,
        "producers in a partition's table for exactly-once; about 2 KiB each when active, and their notes. "
        "Further producers are refused (`overloaded`)",
        ge=1,
        le=1 << 20,
    )
    producer_expiry_ms: int = _setting(
        604_800_000,
        "ms without a batch after which a producer without a name is removed; a week: longer than an outage "
        "over a weekend",
        ge=60_000,
        le=PRODUCER_EXPIRY_MS_MAX,
    )
    scrub_bytes_s: Size = _setting(
        4 << 20,
        "bytes of stored records that the scrub reads per second, to find damage before a reader does: "
        "100 GiB in 7 hours, below a hundredth of a disk's rate; 0 = never",
        ge=0,
        le=1 << 40,
    )
    request_ms: int = _setting(
        30_000,
        "ms that a control request without a deadline may take; half of a usual client timeout",
        ge=100,
        le=DEADLINE_MS_MAX,
    )
    session_grace_s: float = _setting(
        30.0,
        "s without a sign of a member of a cohort after which others get its partitions; above "
        "the 10 s for which it may hold them, with a margin",
        ge=12,
        le=3_600,
    )
    stop_s: float = _setting(
        20.0,
        "s that a stop waits for batches in progress; below the 30 s after which service managers kill",
        gt=0,
        le=600,
    )
    log_format: Literal["auto", "console", "json"] = _setting(
        "auto", "lines on stderr: console on a terminal, JSON elsewhere"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "lowest severity of log lines on stderr"
    )
    faults: str | None = _setting(None, "a fault plan of the storage twin, for tests; none in production")

    @property
    def body_bytes_max(self) -> int:
        """Bytes of the largest body that this node accepts from clients.

        The pool is seven eighths of the budget. Two bodies must fit the pool, and one body with its headers
        and its group's directory (a few KiB) must fit one segment file.
        """
        return min(self.message_bytes, self.stored_bytes_max)

    @property
    def stored_bytes_max(self) -> int:
        """Bytes of the largest body that this node has room for as a replica."""
        pool_bytes = self.budget_bytes - self.budget_bytes // 8
        return min(MESSAGE_BYTES_MAX, pool_bytes // 2, self.segment_bytes - SEGMENT_OVERHEAD_BYTES)

    @field_validator("listen")
    @classmethod
    def _some_address(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one address")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings


def load(flags: dict[str, Any], config: Path | None = None) -> Settings:
    """Load the settings from all sources. ConfigError names the key, the value, the range and the source.

    Args:
        flags: the flags of the command line; absent ones are left out.
        config: a TOML file whose keys are the settings' names.
    """
    _check_environment()
    file_values = _read_file(config) if config is not None else {}
    environment = {key for key in Settings.model_fields if os.environ.get(PREFIX + key.upper()) is not None}
    values = {key: value for key, value in file_values.items() if key not in environment} | flags
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _config_error(error, flags, file_values, config) from None


def _check_environment() -> None:
    names = {PREFIX + key.upper() for key in Settings.model_fields} | OTHER_VARIABLES
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in names:
            raise ConfigError(
                f"the variable {name} is no setting; the settings are {', '.join(sorted(names))}", key=name
            )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        file_values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"settings file {path}: {error.strerror}", key="config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings file {path} is no TOML: {error}", key="config") from error
    for key in file_values:
        if key not in Settings.model_fields:
            names = ", ".join(sorted(Settings.model_fields))
            raise ConfigError(
                f"settings file {path}: {key!r} is no setting; the settings are {names}", key=key
            )
    return file_values


def _config_error(
    error: ValidationError, flags: dict[str, Any], file_values: dict[str, Any], config: Path | None
) -> ConfigError:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "?"
    if first["type"] == "missing":
        return ConfigError(
            f"{key} is not set: pass --{flag_name(key)}, or set {PREFIX}{key.upper()}", key=key
        )
    source = f"--{flag_name(key)}" if key in flags else f"{PREFIX}{key.upper()}"
    if key in file_values and key not in flags and os.environ.get(PREFIX + key.upper()) is None:
        source = f"settings file {config}"
    return ConfigError(f"{key}={first['input']!r} of {source}: {first['msg']}", key=key)


def flag_name(key: str) -> str:
    """The flag of a setting; `--data` is short because every start needs it."""
    return {"data_dir": "data"}.get(key, key.replace("_", "-"))
