"""Settings: four sources, one order, no unknown keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.control.runtime.process.settings import Settings, flag_name, load
from ringfence.control.runtime.process.sizes import parse_size
from ringfence.native.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in Settings.model_fields:
        monkeypatch.delenv(f"RINGFENCE_{key.upper()}", raising=False)


def written(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text)
    return path


def test_flags_win_over_variables_over_the_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(
        tmp_path, 'data_dir = "from-file"\nshards = 2\nbudget_bytes = "64MiB"\nlisten = ["ipc://a"]\n'
    )
    monkeypatch.setenv("RINGFENCE_SHARDS", "3")
    monkeypatch.setenv("RINGFENCE_BUDGET_BYTES", "128 MiB")
    monkeypatch.setenv("RINGFENCE_LISTEN", "tcp://127.0.0.1:1, ipc://b")
    found = load({"budget_bytes": "256MiB"}, config)
    assert found.data_dir == Path("from-file")
    assert found.shards == 3
    assert found.budget_bytes == 256 << 20
    assert found.listen == ("tcp://127.0.0.1:1", "ipc://b")
    assert found.request_ms == 30_000


def test_unknown_keys_are_errors_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"node\.toml.*'shard' is no setting"):
        load({"data_dir": "d"}, written(tmp_path, "shard = 2\n"))
    with pytest.raises(ConfigError, match="colour"):
        load({"data_dir": "d", "colour": "red"})
    monkeypatch.setenv("RINGFENCE_SHARD", "2")
    with pytest.raises(ConfigError, match="RINGFENCE_SHARD is no setting"):
        load({"data_dir": "d"})


def test_values_outside_their_range_name_key_value_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"shards='0' of --shards: .*greater than or equal to 1"):
        load({"data_dir": "d", "shards": "0"})
    with pytest.raises(ConfigError, match=r"shards=99 of settings file .*node\.toml"):
        load({"data_dir": "d"}, written(tmp_path, "shards = 99\n"))
    for weight, why in (
        ("0", "greater than or equal to 1"),
        ("10001", "less than or equal to 10000"),
        ("heavy", "valid integer"),
    ):
        with pytest.raises(ConfigError, match=f"weight='{weight}' of --weight: .*{why}"):
            load({"data_dir": "d", "weight": weight})
    monkeypatch.setenv("RINGFENCE_TRANSPORT", "carrier pigeon")
    with pytest.raises(ConfigError, match="transport='carrier pigeon' of RINGFENCE_TRANSPORT"):
        load({"data_dir": "d"})


def test_a_missing_directory_names_its_flag() -> None:
    with pytest.raises(ConfigError, match="pass --data, or set RINGFENCE_DATA_DIR"):
        load({})


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load({"data_dir": "d"}, tmp_path / "nope.toml")
    with pytest.raises(ConfigError, match="is no TOML"):
        load({"data_dir": "d"}, written(tmp_path, "shards = = 2"))


def test_addresses_may_have_a_scheme_or_none_in_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = {"listen": "0.0.0.0:1, ipc://x", "advertise": "a:2", "join": ["b:3", "[::1]:4"], "control": "c:5"}
    full = {
        "listen": ("tcp://0.0.0.0:1", "ipc://x"),
        "advertise": ("tcp://a:2",),
        "join": ("tcp://b:3", "tcp://[::1]:4"),
        "control": "tcp://c:5",
        "http": "d:6",
    }
    flags = load({"data_dir": "d", **bare, "http": "http://d:6/"})
    lines = [f'{key} = "{value}"' for key, value in full.items() if isinstance(value, str)]
    file = load(
        {"data_dir": "d"}, written(tmp_path, "\n".join([*lines, 'listen = ["0.0.0.0:1", "ipc://x"]']))
    )
    for key, value in bare.items():
        monkeypatch.setenv(f"RINGFENCE_{key.upper()}", value if isinstance(value, str) else ",".join(value))
    monkeypatch.setenv("RINGFENCE_HTTP", "http://d:6")
    environment = load({"data_dir": "d"})
    for key, value in full.items():
        assert getattr(flags, key) == getattr(environment, key) == value, key
    assert (file.listen, file.control, file.http) == (full["listen"], full["control"], full["http"])
    assert load({"data_dir": "d", "listen": "*:7411", "control": "127.0.0.1:*"}).listen == ("tcp://*:7411",)
    flags = load({"data_dir": "d", "join": ("b:3,tcp://b:4", "ipc:///run/a,b")})  # a repeated flag is a tuple
    assert flags.join == ("tcp://b:3", "tcp://b:4", "ipc:///run/a,b")
    monkeypatch.delenv("RINGFENCE_LISTEN")
    with pytest.raises(ConfigError, match="valid string"):
        load({"data_dir": "d"}, written(tmp_path, "listen = [7411]\n"))


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("1k", 1_000), ("1KiB", 1_024), ("1.5 GB", 1_500_000_000), ("2GiB", 2 << 30)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_every_setting_says_what_it_is_and_why() -> None:
    for key, field in Settings.model_fields.items():
        assert field.description, f"{key} has no description"
        assert len(field.description) > 30, f"{key}: {field.description!r} says too little"
        assert flag_name(key) == flag_name(key).lower()
        for unit in ("bytes", "ms"):
            if key.endswith("_" + unit):
                assert unit in field.description, f"{key}: the unit is not named"


def test_the_largest_body_fits_budget_and_segment() -> None:
    def most(**flags: object) -> int:
        return load({"data_dir": "d", **flags}).body_bytes_max

    assert most() == 64 << 20
    assert most(message_bytes="1MiB") == 1 << 20
    assert most(budget_bytes="16MiB") == 7 << 20
    assert most(segment_bytes="16MiB") == (16 << 20) - (64 << 10)
