"""Health and metrics over HTTP, beside a node with a fake native side."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ringfence.control.http.endpoint import beside
from ringfence.control.metrics.prometheus_text import Family, encode
from ringfence.native.errors import ConfigError
from tests.fakes.node_bench import Bench, run, soon
from tests.harness.exposition import parsed
from tests.harness.processes import free_port


async def fetched(address: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


def test_probes_and_metrics_tell_how_the_node_fares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        async with beside(bench.node) as address:
            assert address is not None
            assert address.startswith("http://127.0.0.1:")
            assert (await fetched(f"{address}/health/live"))[0] == 200
            assert await fetched(f"{address}/health/ready") == (200, '{"state":"serving","reasons":[]}')
            bench.native.tell(("quarantined", 2, 3, "CRC"))
            await asyncio.sleep(0.05)
            status, text = await fetched(f"{address}/health/ready")
            assert status == 200
            assert json.loads(text)["state"] == "degraded"
            bench.node.health.phase = "stopping"
            assert (await fetched(f"{address}/health/ready"))[0] == 503
            bench.node.health.phase = "serving"
            status, text = await fetched(f"{address}/metrics")
            assert status == 200
            lines = text.splitlines()
            assert "ringfence_up 1.0" in lines
            assert "ringfence_reasons 1.0" in lines
            families = parsed(text)
            assert families["ringfence_requests"].kind == "counter"
            assert families["ringfence_topics"].kind == "gauge"
            assert (await fetched(f"{address}/nope"))[0] == 404

    run(tmp_path, monkeypatch, work, http="127.0.0.1:0")


def test_names_of_topics_break_no_line_of_the_page() -> None:
    labels = (("topic", 'a"b\\c\nd'), ("partition", "0"))
    page = encode([Family("ringfence_x", "gauge", "one\nline", ((labels, 1.5),))]).decode()
    assert page.splitlines()[2] == 'ringfence_x{partition="0",topic="a\\"b\\\\c\\nd"} 1.5'
    assert parsed(page)["ringfence_x"].kind == "gauge"


@pytest.mark.parametrize(
    "page",
    [
        "# HELP a b\n# HELP a c\na 1.0\n",
        "# TYPE a gauge\na 1.0\na 2.0\n",
        "# TYPE a gauge\n# TYPE a counter\na 1.0\n",
        '# TYPE a gauge\na 1.0\n# TYPE b gauge\nb 1.0\na{x="1"} 1.0\n',
    ],
)
def test_the_strict_parser_refuses_what_scrapers_refuse(page: str) -> None:
    with pytest.raises(AssertionError):
        parsed(page)


def test_its_address_is_known_from_the_start_on_unless_the_system_chooses_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others list it before it is bound: a node that comes back is not without one for a while."""
    port = free_port()

    def told(bench: Bench) -> tuple[str, ...]:
        return bench.node.proposer.state.nodes[bench.node.here].http

    async def fixed(bench: Bench) -> None:
        assert told(bench) == (f"http://127.0.0.1:{port}",)

    async def chosen(bench: Bench) -> None:
        assert told(bench) == (f"http://127.0.0.1:{port}",), "the last one, until it is bound"
        async with beside(bench.node) as address:
            await soon(lambda: told(bench) == (address,))

    async def none(bench: Bench) -> None:
        assert told(bench) == ()

    run(tmp_path, monkeypatch, fixed, http=f"127.0.0.1:{port}")
    run(tmp_path, monkeypatch, chosen, http="127.0.0.1:0")
    run(tmp_path, monkeypatch, none)


@pytest.mark.parametrize(
    ("http", "says"),
    [
        ("0.0.0.0:0", "off loopback"),
        ("http://0.0.0.0:0", "off loopback"),
        ("7412", "HOST:PORT"),
        ("127.0.0.1:http", "HOST:PORT"),
        ("https://127.0.0.1:0", "HOST:PORT or http://HOST:PORT"),
        ("http://127.0.0.1", "HOST:PORT"),
    ],
)
def test_an_endpoint_off_loopback_must_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http: str, says: str
) -> None:
    async def work(_: Bench) -> None:
        raise AssertionError("it serves")

    with pytest.raises(ConfigError, match=says):
        run(tmp_path, monkeypatch, work, http=http)
    assert not list(tmp_path.rglob("store.toml")), "a refused start makes no store"


def test_without_a_setting_there_is_no_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        async with beside(bench.node) as address:
            assert address is None

    run(tmp_path, monkeypatch, work)
