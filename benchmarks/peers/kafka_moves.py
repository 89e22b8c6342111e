"""Gaps of a Kafka partition that moves or changes its leader at 20 MB/s, and of one whose leader is killed.

Each function has its twin in `benchmarks.cluster`: moves.py and failovers.py.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.cluster.failovers import BYTES_PER_S as FAILOVER_BYTES_PER_S
from benchmarks.cluster.failovers import REST_S, figures, kills_a_leader, resumed
from benchmarks.cluster.moves import AFTER_S, BYTES_PER_S, Seen
from benchmarks.cluster.nodes import until
from benchmarks.peers.kafka_cluster import COUNT, TOPIC_CONFIG, WAIT_S, Brokers, Profile
from benchmarks.peers.kafka_server import create_topic
from benchmarks.peers.kafka_steady import KafkaSteady

WARM_BATCHES = 300
"""A virtual machine of Java's that just began is slow: a second of the rate comes before the first figure."""


def moves(folder: Path, profile: Profile, count: int) -> dict[str, Any]:
    """`moved`: one replica, all of it copied to another broker. `handed_over`: the next of three leads."""
    with Brokers(folder, profile) as brokers:
        moved, handed_over = Seen(), Seen()
        for number in range(0, count, 2):
            _of_topic(brokers, f"moved-{number}", 1, min(2, count - number), moved)
        _of_topic(brokers, "handed-over", COUNT, count, handed_over)
        result = {"moved": moved.figures(), "handed_over": handed_over.figures()}
    return {"moves": count, "bytes_per_s": BYTES_PER_S, **result}


def _of_topic(brokers: Brokers, topic: str, replicas: int, count: int, seen: Seen) -> None:
    config = {**TOPIC_CONFIG, "min.insync.replicas": min(2, replicas)}
    create_topic(brokers.addresses, topic, replicas, config)
    brokers.until_whole(topic)
    with KafkaSteady(brokers.addresses, topic, BYTES_PER_S, brokers.profile.producer) as steady:
        until(lambda: len(steady.acknowledged_s) > WARM_BATCHES, WAIT_S)
        for _ in range(count):
            leader, now, _ = brokers.state(topic)
            target = leader % COUNT + 1
            if replicas > 1:  # the order of replicas changes no leader, so it is no part of the gap
                brokers.reassign(topic, (target, *(node for node in now if node != target)))
            began = time.perf_counter()
            time.sleep(AFTER_S)
            seen.calm.append(steady.longest_gap_s(began, time.perf_counter()))
            # Kafka does not tell: what it had acknowledged by then, for nothing of it is old enough to go.
            seen.size += len(steady.acknowledged_s) * steady.batch_bytes if replicas == 1 else 0
            began = time.perf_counter()
            brokers.elect(topic) if replicas > 1 else brokers.reassign(topic, (target,))
            brokers.until_led(topic, target)
            ended = time.perf_counter()
            time.sleep(AFTER_S)
            seen.gaps.append(steady.longest_gap_s(began, time.perf_counter()))
            seen.durations.append(ended - began)
    seen.batches += len(steady.acknowledged_s)
    brokers.remove(topic)


def failovers(folder: Path, profile: Profile, kills: int) -> dict[str, Any]:
    """Seconds without an acknowledgement around each kill -9; every fourth is of the active controller."""
    plain: list[float] = []
    leading: list[float] = []
    topic = "killed"
    with Brokers(folder, profile) as brokers:
        create_topic(brokers.addresses, topic, COUNT, TOPIC_CONFIG)
        brokers.until_whole(topic)
        more = brokers.profile.producer
        with KafkaSteady(brokers.addresses, topic, FAILOVER_BYTES_PER_S, more) as steady:
            until(lambda: len(steady.acknowledged_s) > WARM_BATCHES, WAIT_S)
            for number in range(kills):
                of_controller = kills_a_leader(number)
                controller = brokers.controller()
                victim = controller if of_controller else controller % COUNT + 1
                brokers.hand_over(topic, victim)
                time.sleep(REST_S)
                began = time.perf_counter()
                brokers.broker(victim).kill()
                until(lambda began=began: resumed(steady, began), WAIT_S)
                seen = steady.longest_gap_s(began, time.perf_counter())
                (leading if of_controller else plain).append(seen)
                brokers.broker(victim).start()
                brokers.broker(victim).wait(COUNT)
                brokers.until_whole(topic)
    return {"kills": kills, **figures(plain, leading)}
