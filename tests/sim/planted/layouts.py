"""Bugs of layout changes, one at a time, patched into the control plane and into the client's machines.

docs/design/layout_changes.md and docs/design/producer_cuts.md have the rules that they break.

Not here is a `stored` that is one less than it should be. A connection keeps the order of answers, and of a
sealed partition one batch is asked for at a time, the lowest first: so the last batch that is stored has its
outcome before anything is said of later ones. Walks of the producer deliver answers in any order and find it
(`StoredIsOneLess` in tests/fakes/cut_planted.py).

Nor are positions that leave out what waits for others. That is no fault: what waits was never read, and comes
after something that is listed. So a restored reader begins it in any case, and where it was pruned meanwhile,
what it waits for is told as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from ringfence.common import lineage
from ringfence.common.routes import overlap
from ringfence.common.send_effects import FetchTable, Sealed
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.runtime.layout import participant
from ringfence.control.runtime.layout.inheritance import Inheritance
from ringfence.control.runtime.layout.participant import LayoutParticipant
from ringfence.control.state_machines.layout.hand_over import LackBoard
from ringfence.control.state_machines.metadata import cluster, layout_rules, reassignments, scopes
from ringfence.native.wire import Code
from ringfence.send import resuming, sender
from ringfence.send.inflight import Inflight
from ringfence.send.reroute import Reroute
from tests.sim.clients import lineage_consumer
from tests.sim.clients.lineage_publisher import KEEP_S
from tests.sim.clients.lineage_writer import LineageDriver
from tests.sim.faults.plan import NAMED, Plan
from tests.sim.faults.struck import Cell

Patch = pytest.MonkeyPatch

# ---- control plane ---------------------------------------------------------------------------------------


def _seal_before_the_mark(patch: Patch) -> None:
    """A source is fenced, and tells its end before a quorum has it."""
    original = LayoutParticipant._hold

    async def hold(self: Any, transition: Any, source: Any, permit: Any) -> Any:
        task = asyncio.get_running_loop().create_task(original(self, transition, source, permit))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)
        return self._engine.figures([(transition.topic, source)])[transition.topic, source].end, 0

    patch.setattr(LayoutParticipant, "_hold", hold)


def _abort_draws_no_epoch(patch: Patch) -> None:
    """Sources that were fenced stay so."""
    original = layout_rules.abort

    def abort(state: Any, transition: Any, *rest: Any) -> Any:
        return original(state, replace(transition, phase=ChangePhase.PREPARED), *rest)

    patch.setattr(layout_rules, "abort", abort)


def _restart_aborts_nothing(patch: Patch) -> None:
    for module in (cluster, reassignments):
        patch.setattr(module.layout_rules, "overtaken", lambda state, *_: state)


def _abort_leaves_children(patch: Patch) -> None:
    """No store is told to drop what it has of the children."""
    patch.setattr(layout_rules, "with_released_children", lambda state, _: state)


def _create_unchecked(patch: Patch) -> None:
    """A child is made though its change has ended while the order waited."""
    patch.setattr(LayoutParticipant, "apply", lambda *_: None)
    patch.setattr(LayoutParticipant, "_permit", lambda *_: lambda: True)


def _rest_left_out(patch: Patch) -> None:
    """Children know what the base had, and not what came until the HOLD."""

    async def copy(self: Any, transition: Any, child: Any, heritage: Any, end: Any, permit: Any) -> None:
        page = await self._page(transition, child, heritage, since=end.records + 1, after=0)
        await self._append(transition, child, heritage, page, is_final=True, permit=permit)

    patch.setattr(Inheritance, "_copy_rest_table", copy)


def _one_source_only(patch: Patch) -> None:
    """A child inherits the table of the source that has its lowest slot."""
    original = Inheritance._copy_rest_table

    async def copy(self: Any, transition: Any, child: Any, heritage: Any, end: Any, permit: Any) -> None:
        if heritage.gates != ():
            await original(self, transition, child, heritage, end, permit)

    patch.setattr(Inheritance, "_copy_rest_table", copy)


def _look_wants_admits(patch: Patch) -> None:
    """A child that was split again must take rows before its change is confirmed."""
    original = vars(participant)["is_settled"]

    def is_settled(state: Any, order: Any, here: Any, local: Any) -> bool:
        transition = state.transitions.get(order.change)
        sealed = () if transition is None or transition.may_abort else transition.children
        topic = None if transition is None else state.topics[transition.topic]
        if any(topic.seal(child.partition) is not None for child in sealed):  # type: ignore[union-attr]
            return False
        return bool(original(state, order, here, local))

    patch.setattr(participant, "is_settled", is_settled)


def _sealed_owner_stays(patch: Patch) -> None:
    """Nobody hands a sealed partition over whose owner lacks records of it."""
    patch.setattr(LackBoard, "due", lambda *_: ())


# ---- producers -------------------------------------------------------------------------------------------


def _held_is_sealed(patch: Patch) -> None:
    """A fenced source that answers `held` is taken for sealed, with nothing of the batch in it."""
    original = Inflight.refused

    def refused(self: Any, key: int, attempt: int, error: Any, *rest: Any, **more: Any) -> Any:
        entry = self._current(key, attempt)
        if error.code is Code.HELD and entry is not None and self.routes is not None:
            return self.sealed(key, attempt, Sealed(entry.sequence, (), self._version + 1), 0)
        return original(self, key, attempt, error, *rest, **more)

    patch.setattr(Inflight, "refused", refused)


def _stored_is_one_more(patch: Patch) -> None:
    """`stored` is taken for the last sequence, and the first that is not stored for a stored one."""
    original = sender._word

    def word(error: Any) -> Sealed:
        found = original(error)
        return found if found.stored is None else found._replace(stored=found.stored + 1)

    patch.setattr(sender, "_word", word)


def _stored_is_untold(patch: Patch) -> None:
    """A sealed partition's answers do not say how much of the producer is stored there."""
    original = sender._word
    patch.setattr(sender, "_word", lambda error: original(error)._replace(stored=None))


def _table_is_not_fetched(patch: Patch) -> None:
    """A client whose pushes are lost does not ask for a newer table."""

    def silent(call: Any) -> Any:
        def told(*args: Any, **more: Any) -> Any:
            return [effect for effect in call(*args, **more) if not isinstance(effect, FetchTable)]

        return told

    for name in ("sealed", "redirected", "refused"):
        patch.setattr(Inflight, name, silent(vars(Inflight)[name]))
    patch.setattr(Inflight, "waits_for_table", property(lambda _: False))


def _lost_is_not_stored(patch: Patch) -> None:
    """What had no answer is routed again without asking the source."""
    original = Reroute._settle

    def settle(self: Any, queue: Any) -> Any:
        if not queue.is_active:
            for entry in queue.flight.values():
                if entry.lost and not entry.awaiting:
                    entry.lost = 0
        return original(self, queue)

    patch.setattr(Reroute, "_settle", settle)


def _children_at_once(patch: Patch) -> None:
    """Children take batches while some of their ancestors have no outcome."""
    patch.setattr(Reroute, "_is_blocked", lambda *_: False)


def _parents_only(patch: Patch) -> None:
    """A child waits for its parents, not for older ancestors."""

    def is_blocked(self: Any, queue: Any) -> bool:
        older = {
            number: slots
            for number, slots in {**self.routes.active, **self.routes.sealed}.items()
            if number < queue.partition and overlap(slots, queue.slots)
        }
        parents = {
            number
            for number, slots in older.items()
            if not any(number < newer and overlap(slots, other) for newer, other in older.items())
        }
        return any(number in self._cut and not self._cut[number].is_empty for number in parents)

    patch.setattr(Reroute, "_is_blocked", is_blocked)


def _two_bodies_of_one_send(patch: Patch) -> None:
    """After a merge the bodies of one send of a name stay apart."""
    original = Reroute.__init__

    def init(self: Any, **given: Any) -> None:
        original(self, **{**given, "joins": False})

    patch.setattr(Reroute, "__init__", init)


def _hole_is_forgotten(patch: Patch) -> None:
    """What a name sent after a hole is stored in the children."""
    patch.setattr(Reroute, "_inherit_hole", lambda *_: [])


def _points_by_the_greatest(patch: Patch) -> None:
    """A name that is resumed takes the greatest of its resume points for all slots."""
    original = vars(resuming)["ResumePoints"]

    def points(given: Any, slots_of: Any) -> Any:
        made = original(given, slots_of)
        made.sends[:] = made.greatest
        return made

    patch.setattr(resuming, "ResumePoints", points)


# ---- transactions ----------------------------------------------------------------------------------------


def _moved_unchecked(patch: Patch) -> None:
    """A COMMIT may name a sealed partition, which takes no publish record."""
    patch.setattr(scopes, "seal_fault", lambda *_: None)


def _origin_left_out(patch: Patch) -> None:
    """Rows that are staged again count as the newest of their transaction."""
    patch.setattr(LineageDriver, "_with_origin", lambda self, attempt, *_: self._front(attempt))


# ---- readers ---------------------------------------------------------------------------------------------


def _reader_begins_children_at_once(patch: Patch) -> None:
    admitted = property(lambda self: list(self.open))
    patch.setattr(lineage.Lineage, "admitted", admitted)


def _reader_ends_at_an_empty_answer(patch: Patch) -> None:
    """A reader that has caught up with a partition which the table seals takes it for finished."""
    original = vars(lineage_consumer)["has_ended"]
    patch.setattr(lineage_consumer, "has_ended", lambda header: original(header) or not header.body_bytes)


def _positions_lack_sealed(patch: Patch) -> None:
    """Positions list no sealed partition, also where rows of it are still to be read."""

    def positions(self: Any) -> dict[int, tuple[int, int]]:
        parts = self._lineage.view.parts
        return {
            number: place
            for number, place in self._cursors.items()
            if number in parts and not parts[number].is_sealed
        }

    patch.setattr(lineage_consumer.LineageConsumer, "_positions", positions)


OWN: Final = (
    _seal_before_the_mark,
    _abort_draws_no_epoch,
    _restart_aborts_nothing,
    _abort_leaves_children,
    _create_unchecked,
    _rest_left_out,
    _one_source_only,
    _look_wants_admits,
    _sealed_owner_stays,
    _held_is_sealed,
    _stored_is_one_more,
    _stored_is_untold,
    _table_is_not_fetched,
    _lost_is_not_stored,
    _children_at_once,
    _parents_only,
    _two_bodies_of_one_send,
    _hole_is_forgotten,
    _points_by_the_greatest,
    _moved_unchecked,
    _origin_left_out,
    _reader_begins_children_at_once,
    _reader_ends_at_an_empty_answer,
    _positions_lack_sealed,
)


def _has_name(plan: Plan) -> bool:
    return plan.seed % NAMED == 0 and not plan.keyless


SHOWN_BY: Final[dict[str, Callable[[Plan], bool]]] = {
    "create_unchecked": lambda plan: plan.heard_us > 0,
    "points_by_the_greatest": _has_name,
    "moved_unchecked": lambda plan: plan.writers > 0,
    "origin_left_out": lambda plan: plan.writers > 0 and not plan.keyless,
    "hole_is_forgotten": _has_name,
    "table_is_not_fetched": lambda plan: plan.seed % 2 == 1,
    "stored_is_untold": lambda plan: dict(plan.limits)["resolve_keep_s"] > KEEP_S,
}
"""Seeds that have what the bug is in."""
STORIES: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "hole_is_forgotten": {"unheard_source": (400, 900)},
    "parents_only": {"unheard_source": (400, 900)},
    "sealed_owner_stays": {"lagging_sealed": (300, 900)},
    "origin_left_out": {"split": (300, 900), "merge": (400, 1_200), "repartition": (600, 1_800)},
}
"""All that strikes in these seeds: much of what shows the bug."""
CELLS: Final = {"two_bodies_of_one_send": Cell("held", "client", "partition", "short")}
"""Cells of the layout matrix, in seeds with a name whose partitions are repartitioned, that show these more
often than seeds do: sends wait at sources and are joined at their child."""
ELSEWHERE: Final = {"look_wants_admits": "tests/component/control/test_layout_changes.py"}
"""Where a bug is found that seeds show too seldom: the answer to a question about a child is lost, and the
child is sealed before the question is asked again."""
LAYOUT_BUGS: Final[dict[str, Callable[[Patch], None]]] = {bug.__name__.removeprefix("_"): bug for bug in OWN}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With one bug switched on."""
    with pytest.MonkeyPatch.context() as patch:
        LAYOUT_BUGS[name](patch)
        yield
