"""Push ASSIGN to members that joined at this node and whose slices changed, once rules are installed.

Nothing depends on a push: a member that misses one hears of the generation with its next beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfence.control.model.cohorts import Cohort, CohortId, Member, MemberSession
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.cohorts.engine import CohortEngine
from ringfence.control.state_machines.cohorts.members import JoinedPage, joined
from ringfence.control.state_machines.metadata.cohort_lineage import members_of
from ringfence.native import cohort_messages, messages
from ringfence.native._node import crc32c, crc32c_seal
from ringfence.native.wire import ANSWER_STRUCT, AnswerFlags, AnswerHeader, Opcode, Status


class AssignPushes:
    """What members of this node were told last, and on which connections they joined."""

    def __init__(self, engine: CohortEngine) -> None:
        self._engine = engine
        # Pushes since the start of this node.
        self.count = 0
        self._told: dict[CohortId, tuple[Cohort, Mapping[str, Member]]] = {}
        self._connections: dict[CohortId, dict[MemberSession, int]] = {}

    def joined(self, cohort: CohortId, session: MemberSession, connection: int) -> None:
        """A member joined, or asked for its slice, on this connection."""
        self._connections.setdefault(cohort, {})[session] = connection

    def installed(self, state: MetadataState, cohorts: Iterable[CohortId]) -> int:
        """The rules of these cohorts are installed as of `state`; the number of pushes."""
        count = 0
        for number in cohorts:
            before, cohort = self._told.pop(number, None), state.cohorts.get(number)
            if cohort is None:
                self._connections.pop(number, None)
                continue
            members = members_of(state, number)
            self._told[number] = (cohort, members)
            connections = self._connections.get(number)
            if connections is None:
                continue
            if before is not None and before[0].generation != cohort.generation:
                is_sought = before[0].incarnation != cohort.incarnation
                for name, member in members.items():
                    old = before[1].get(name)
                    is_changed = is_sought or old is None or old.slice != member.slice
                    if is_changed and member.session in connections:
                        count += self._push(state, cohort, name, connections[member.session])
            if before is not None and before[1] is not members:
                left = {member.session for member in members.values()}
                self._connections[number] = {one: at for one, at in connections.items() if one in left}
        return count

    def _push(self, state: MetadataState, cohort: Cohort, name: str, connection: int) -> int:
        page = joined(state, cohort, name)
        if page is None:
            return 0
        topic = state.topics[cohort.topic]
        assign = cohort_messages.Assign(
            version=topic.layout.version,
            cohort=cohort.cohort,
            generation=page.generation,
            incarnation=page.incarnation,
            session=page.session,
            slices=slices_of(topic, page),
            more=page.more,
        )
        body = messages.encode(assign)
        self.count += 1
        self._engine.send(connection, _header(topic, page.generation, body), body)
        return 1


def _header(topic: Topic, generation: int, body: bytes) -> bytes:
    header = AnswerHeader(
        opcode=Opcode.ASSIGN,
        status=Status.PUSH,
        topic=topic.topic,
        layout_version=topic.layout.version,
        sequence=generation,
        flags=AnswerFlags.CONTROL,
        body_bytes=len(body),
        body_crc=crc32c(body),
    )
    packed = bytearray(ANSWER_STRUCT.pack(*header))
    crc32c_seal(packed)
    return bytes(packed)


def slices_of(topic: Topic, page: JoinedPage) -> list[cohort_messages.Slice]:
    """The partitions of a page with their slots and names."""
    parts = topic.layout.by_id()
    return [
        cohort_messages.Slice(
            partition=number, lo=parts[number].slots.lo, hi=parts[number].slots.hi, name=parts[number].name
        )
        for number in page.partitions
    ]
