"""Tell what the gates of this node have reached: partitions that are drained, and that began an incarnation.

The leader hears it for the metadata. The owners of children hear of drained parents directly, so that
children open without the leader (CD5). Words are told again until this node's own metadata has them (CD4):
what is lost needs no answer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from ringfence.control.model.cohort_commands import Begun, Drained
from ringfence.control.model.cohorts import COHORT_LEVEL, Cohort, CohortId, Incarnation
from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.cohorts.engine import CohortEngine
from ringfence.control.runtime.cohorts.leader import CohortLeader, now_ms
from ringfence.control.runtime.data_plane.native_node import OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.cohort_messages import WORDS_MAX, BegunTold, DrainedTold, TellProgress
from ringfence.control.state_machines.cohorts import gates
from ringfence.control.state_machines.cohorts.gates import DrainedWord, DrainedWords, GateRule
from ringfence.control.state_machines.cohorts.reports import ProgressReports
from ringfence.control.state_machines.metadata.cohort_lineage import heir

_LOG = structlog.get_logger("ringfence.cohorts")
# Interval of looks at gates while the metadata lacks what they have, and else, in seconds.
LOOK_S: Final = 0.1
IDLE_S: Final = 1.0
TIMEOUT_S: Final = 1.0
# Words that are forgotten because the metadata has them, in looks.
FORGET_EVERY: Final = 50

# Called with cohorts whose words changed: their rules are derived and installed again.
OnWords = Callable[[Collection[CohortId]], None]


class GateWords:
    """What one node tells, and what it was told."""

    def __init__(
        self,
        proposer: RaftProposer,
        peer_client: PeerClient,
        engine: CohortEngine,
        leader: CohortLeader,
        here: Replica,
        words: DrainedWords,
        on_words: OnWords,
    ) -> None:
        self._proposer, self._peer_client, self._engine = proposer, peer_client, engine
        self._leader, self._here, self._on_words = leader, here, on_words
        self.words = words
        self._drained = ProgressReports[DrainedWord]()
        self._begun = ProgressReports[Begun]()
        self._looks = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="gate words")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def wake(self) -> None:
        """Look soon: an entry was applied, or a gate has made progress."""
        self._wake.set()

    # ---- what was told --------------------------------------------------------------------------------

    def take(self, call: TellProgress) -> None:
        """Words of another owner of gates; the leader's part takes what is for the metadata."""
        self._leader.take_progress(call)
        self._note(word_of(told) for told in call.drained)

    def _note(self, words: Iterable[DrainedWord]) -> None:
        state = self._proposer.state
        new = [word for word in words if not self._is_known(state, word)]
        if new:
            self.words.tell(new)
            self._on_words({word.mark.cohort for word in new})

    def _is_known(self, state: MetadataState, word: DrainedWord) -> bool:
        cohort = state.cohorts.get(word.mark.cohort)
        if cohort is None:
            return False
        return self.words.is_drained(state.topics[cohort.topic], cohort, word.mark.partition)

    # ---- what is told ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            is_missing = False
            if self._proposer.state.level >= COHORT_LEVEL:
                try:
                    is_missing = await self.look()
                except OrderError as error:  # the engine has ended; `NativeNode` reports it
                    _LOG.warning("gates not read", why=str(error))
            try:
                async with asyncio.timeout(LOOK_S if is_missing else IDLE_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()
            await asyncio.sleep(LOOK_S / 2)  # entries of a herd are one look

    async def look(self) -> bool:
        """Look at the gates of this node once, and tell what is due; whether something is missing."""
        state = self._proposer.state
        rules = {
            number: found
            for number, cohort in state.cohorts.items()
            if state.topics[cohort.topic].seals or cohort.resetting
            if (found := [rule for rule in self._rules(state, cohort) if may_be_told(rule)])
        }
        status = self._engine.progress() if rules else {}
        drained: list[DrainedWord] = []
        begun: list[Begun] = []
        for number, found in rules.items():
            progress = {
                (number, rule.partition): one.progress
                for rule in found
                if (one := status.get((number, rule.partition))) is not None
                if is_open(state, number, rule.partition, one.epoch)
            }
            drained += gates.drained_words(state, found, progress)
            begun += gates.begun_words(state, found, progress)
        self._note(drained)
        now = now_ms()
        await self._tell(state, self._drained.due(drained, now), self._begun.due(begun, now))
        self._looks += 1
        if self._looks % FORGET_EVERY == 0:
            self.words.forget(self._proposer.state)
        return bool(drained or begun)

    def _rules(self, state: MetadataState, cohort: Cohort) -> tuple[GateRule, ...]:
        return gates.rules_of(state, cohort, self._here, self.words)

    async def _tell(
        self, state: MetadataState, drained: tuple[DrainedWord, ...], begun: tuple[Begun, ...]
    ) -> None:
        if not drained and not begun:
            return
        for_nodes: dict[NodeId, dict[DrainedWord, None]] = defaultdict(dict)
        for word in drained:
            for node in owners_of_children(state, word):
                for_nodes[node][word] = None
        leader = NodeId(self._proposer.replica.leader)
        calls = [(leader, call) for call in calls_of(drained, begun)] if leader else []
        calls += [
            (node, call)
            for node, words in for_nodes.items()
            if node != leader
            for call in calls_of(words, ())
        ]
        await asyncio.gather(*(self._send(node, call) for node, call in calls))

    async def _send(self, node: NodeId, call: TellProgress) -> None:
        if node == self._here.node:
            self._leader.take_progress(call)
            return
        try:
            await self._peer_client.ask(node, call, TIMEOUT_S)
        except RequestRefused as refusal:
            _LOG.debug("progress of gates not told", node=node, why=refusal.message)


def is_open(state: MetadataState, cohort: CohortId, partition: PartitionId, epoch: Epoch) -> bool:
    """Whether a log is open under the epoch that the metadata has: an owner of before tells nothing."""
    topic = state.topics[state.cohorts[cohort].topic]
    return topic.assignments[heir(topic.layout.by_id(), partition)].epoch == epoch


def may_be_told(rule: GateRule) -> bool:
    """Whether the owner of this gate has something to tell, once its log has it."""
    return not rule.is_begun or (rule.end is not None and not rule.is_through)


def owners_of_children(state: MetadataState, word: DrainedWord) -> set[NodeId]:
    """Nodes that own the gates of the partition's children."""
    cohort = state.cohorts.get(word.mark.cohort)
    if cohort is None:
        return set()
    topic = state.topics[cohort.topic]
    parts = topic.layout.by_id()
    part = parts.get(word.mark.partition)
    children = () if part is None else part.children
    return {topic.assignments[heir(parts, child)].owner.node for child in children if child in parts}


def calls_of(drained: Iterable[DrainedWord], begun: Iterable[Begun]) -> list[TellProgress]:
    """The words in messages of bounded size."""
    words = [
        DrainedTold(
            *(word.mark.cohort, word.mark.incarnation, word.mark.partition), word.mark.read, *word[1:]
        )
        for word in drained
    ]
    begins = [BegunTold(*one) for one in begun]
    count = max(len(words), len(begins))
    return [
        TellProgress(drained=tuple(words[at : at + WORDS_MAX]), begun=tuple(begins[at : at + WORDS_MAX]))
        for at in range(0, count, WORDS_MAX)
    ]


def word_of(told: DrainedTold) -> DrainedWord:
    mark = Drained(
        CohortId(told.cohort), Incarnation(told.incarnation), PartitionId(told.partition), told.read
    )
    return DrainedWord(mark, PartitionId(told.log), Epoch(told.epoch))
