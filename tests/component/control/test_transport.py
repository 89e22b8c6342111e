"""Control messages: what is refused, what is dropped, what arrives."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from ringfence.control.transport import body_chunks, envelope
from ringfence.control.transport.body_chunks import CHUNK_BYTES, Chunk, ChunkAnswer, Inbox
from ringfence.control.transport.envelope import Envelope, EnvelopeError, Kind
from ringfence.control.transport.hub import QUEUE_MESSAGES_MAX, ForeignClusterError, Hub, NoAnswerError
from ringfence.control.transport.large_bodies import LargeBodies

CLUSTER = b"c" * 16
GOOD = Envelope(envelope.VERSION, Kind.RAFT, CLUSTER, 1, 2, "tcp://127.0.0.1:1", 0, b"body")


class Place:
    """A hub and what came in."""

    def __init__(self, node: int, cluster: bytes = CLUSTER) -> None:
        self.heard: list[Envelope] = []
        self.hub = Hub(on_message=self.heard.append, on_question=self.answer)
        self.address = self.hub.bind("tcp://127.0.0.1:0")
        self.hub.identify(cluster, node)

    async def answer(self, asked: Envelope) -> bytes:
        return b"answer to " + asked.body

    async def hears(self, count: int) -> None:
        for _ in range(500):
            if len(self.heard) >= count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{len(self.heard)} messages instead of {count}: {self.hub.counters}")


def run(work: Callable[[Place, Place], Awaitable[None]], cluster: bytes = CLUSTER) -> None:
    async def whole() -> None:
        one, two = Place(1), Place(2, cluster)
        try:
            await work(one, two)
        finally:
            one.hub.close()
            two.hub.close()

    asyncio.run(whole())


async def sent(one: Place, two: Place, kind: Kind, body: bytes, to: int = 2) -> None:
    """Until the connection is there messages are dropped."""
    for _ in range(500):
        if one.hub.send(two.address, to, kind, body):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no connection")


def test_a_message_arrives_with_its_sender() -> None:
    async def work(one: Place, two: Place) -> None:
        await sent(one, two, Kind.RAFT, b"body")
        await two.hears(1)
        heard = two.heard[0]
        assert (heard.sender, heard.to, heard.kind, heard.body) == (1, 2, Kind.RAFT, b"body")
        assert heard.address == one.address

    run(work)


def test_many_messages_arrive_in_order() -> None:
    async def work(one: Place, two: Place) -> None:
        await sent(one, two, Kind.RAFT, b"0")
        for number in range(1, 200):
            await sent(one, two, Kind.RAFT, b"%d" % number)
        await two.hears(200)
        assert [int(heard.body) for heard in two.heard] == list(range(200))

    run(work)


def test_questions_are_answered() -> None:
    async def work(one: Place, two: Place) -> None:
        assert await one.hub.ask(two.address, b"this", 5, to=2) == b"answer to this"
        assert await one.hub.ask(two.address, b"anybody", 5) == b"answer to anybody"
        with pytest.raises(NoAnswerError, match=r"within 0\.3 s"):
            await one.hub.ask(two.address, b"another", 0.3, to=3)
        with pytest.raises(NoAnswerError, match=r"within 0\.2 s"):
            await one.hub.ask("tcp://127.0.0.1:9", b"nobody", 0.2)

    run(work)


def test_another_cluster_hears_nothing_and_says_who_it_is() -> None:
    async def work(one: Place, two: Place) -> None:
        await sent(one, two, Kind.RAFT, b"body")
        with pytest.raises(ForeignClusterError, match="belongs to cluster 7878"):
            await one.hub.ask(two.address, b"join", 5)
        assert two.heard == []
        assert two.hub.counters["foreign"] == 2

    run(work, cluster=b"x" * 16)


def test_a_message_for_another_node_is_counted_and_dropped() -> None:
    async def work(one: Place, two: Place) -> None:
        await sent(one, two, Kind.RAFT, b"wrong", to=3)
        await sent(one, two, Kind.RAFT, b"right")
        await two.hears(1)
        assert [heard.body for heard in two.heard] == [b"right"]
        assert two.hub.counters["misdirected"] == 1

    run(work)


def test_nothing_waits_without_bound_for_a_peer_that_is_gone() -> None:
    async def work(one: Place, two: Place) -> None:
        await sent(one, two, Kind.RAFT, b"body")
        await two.hears(1)
        two.hub.close()
        await asyncio.sleep(0.1)
        going = sum(one.hub.send(two.address, 2, Kind.RAFT, bytes(1_000)) for _ in range(5_000))
        assert going <= 2 * QUEUE_MESSAGES_MAX
        assert one.hub.counters["dropped"] >= 5_000 - 2 * QUEUE_MESSAGES_MAX

    run(work)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "garbage"),
        (b"\x91" * 50_000, "garbage"),
        (b"\xc1", "garbage"),
        (bytes(envelope.ENVELOPE_BYTES_MAX + 1), "oversized"),
        (envelope.encode(GOOD) + b"\0", "garbage"),
        (envelope.encode(GOOD)[:-1], "garbage"),
        (envelope.encode(Envelope(1, Kind.RAFT, CLUSTER, 1, 2, "", 0, b"")), "version"),
        (envelope.encode(Envelope(2, Kind.RAFT, b"short", 1, 2, "", 0, b"")), "garbage"),
        (envelope.encode(Envelope(2, Kind.RAFT, CLUSTER, -1, 2, "", 0, b"")), "garbage"),
        (envelope.encode(Envelope(2, Kind.RAFT, CLUSTER, 1, 2, "x" * 257, 0, b"")), "garbage"),
    ],
)
def test_what_is_no_message_is_refused_by_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        envelope.decode(data)
    assert caught.value.reason == reason


def test_a_whole_message_is_taken() -> None:
    assert envelope.decode(envelope.encode(GOOD)) == GOOD


BODY = bytes(range(256)) * 3_000  # three pieces


def pieces(transfer: int) -> list[Chunk]:
    return [
        Chunk(transfer, start, len(BODY), BODY[start : start + CHUNK_BYTES])
        for start in range(0, len(BODY), CHUNK_BYTES)
    ]


def test_pieces_become_a_body_once_however_often_they_come() -> None:
    inbox, bodies = Inbox(), []
    for piece in pieces(7):
        for _ in range(2):
            answer, body = inbox.take(1, piece)
            if body is not None:
                bodies.append(body)
                break
            assert answer == ChunkAnswer(7, piece.start + len(piece.data))
    assert bodies == [BODY]


def test_pieces_out_of_order_or_of_another_transfer_are_not_kept() -> None:
    inbox, first, other = Inbox(), pieces(1), pieces(2)
    assert inbox.take(1, first[1]) == (ChunkAnswer(1, 0), None)
    assert inbox.take(1, first[0]) == (ChunkAnswer(1, CHUNK_BYTES), None)
    assert inbox.take(1, first[2]) == (ChunkAnswer(1, CHUNK_BYTES), None)
    assert inbox.take(1, other[1]) == (ChunkAnswer(2, 0), None)
    assert inbox.take(1, other[0]) == (ChunkAnswer(2, CHUNK_BYTES), None)  # a new one replaces the old one
    assert inbox.take(1, first[1]) == (ChunkAnswer(1, 0), None)
    assert inbox.take(1, other[1])[1] is None
    assert inbox.take(1, other[2])[1] == BODY


def test_pieces_of_many_senders_are_bounded() -> None:
    inbox = Inbox()
    for sender in range(1_000):
        inbox.take(sender, pieces(1)[0])
    assert len(inbox._transfers) == body_chunks.SENDERS_MAX


@pytest.mark.parametrize("lost", [0, 3])
def test_a_courier_sends_again_what_was_lost_and_gives_up_in_the_end(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.control.transport.large_bodies.SILENCE_S", 0.02)

    async def work() -> None:
        inbox, bodies, numbers = Inbox(), [], itertools.count()

        def carry(peer: int, body: bytes) -> None:
            if lost and next(numbers) % lost == 0:
                return
            answer, whole = inbox.take(1, body_chunks.decode_chunk(body))
            bodies.extend([whole] if whole is not None else [])
            courier.acknowledge(peer, answer)

        courier = LargeBodies(carry)
        assert await courier.send(9, BODY)
        assert bodies == [BODY]
        assert not courier.is_busy(9)
        silent = LargeBodies(lambda *_: None)
        assert not await silent.send(9, BODY)

    asyncio.run(work())
