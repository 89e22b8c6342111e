"""One parked range, its owner, the scopes of its exports, and exporters that may be killed at each step.

A request is carried out at some time after it was sent, or never, also when its sender is dead; so is its
answer. Operators put the range back or discard it as a node does: first they close the scope of an export.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ringfence.consumer.parked_export import (
    BeginScope,
    Call,
    Commit,
    CommitAnswer,
    DiscardRows,
    Ending,
    Event,
    Export,
    Failed,
    Fenced,
    Mark,
    Marked,
    RowsDiscarded,
    RowsStaged,
    ScopeBegun,
    StageRows,
    Take,
    TakeAnswer,
    scope_of,
)
from ringfence.native.wire import SCOPE_EPOCH_MAX


@dataclass(slots=True)
class Scope:
    number: int
    driver: int = 0
    committed: int = 0
    expired: int = 0
    staged: set[tuple[int, int]] = field(default_factory=set)  # (driver, epoch)

    @property
    def decided(self) -> int:
        return max(self.committed, self.expired)


class Exporter:
    """One process that exports the range; `call` is its request without an answer."""

    def __init__(self, world: ParkedWorld, machine: Export) -> None:
        self._world, self.machine = world, machine
        self.driver = 0
        self.is_alive = True
        self.call: Call | None = None
        self.answer: Event | None = None
        self._send(machine.begin())

    def _send(self, call: Call | None) -> None:
        self.call, self.answer = call, None
        if call is not None:
            self._world.sent.append((self, call))

    def hear(self) -> None:
        """The answer of its call arrives."""
        assert self.call is not None
        assert self.answer is not None
        call, answer = self.call, self.answer
        self._send(self.machine.event(call, answer))


class ParkedWorld:
    """`checks_commit`: the owner takes `exported` only of a committed scope, as real ones do."""

    def __init__(self, seed: int, export_type: type[Export] = Export, *, checks_commit: bool = True) -> None:
        self.dice = random.Random(seed)
        self.state = "parked"  # or exporting, exported, available, discarded
        self.scope = 0
        self.copies = 0
        self.scopes: dict[str, Scope] = {}
        self.ids = 0
        self.exporters: list[Exporter] = []
        self.sent: list[tuple[Exporter, Call]] = []
        self.faults: list[str] = []
        self.is_forgotten = False
        self._export_type, self._checks_commit = export_type, checks_commit
        self._closing = ""

    # ---- who acts ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Another exporter has read the list."""
        if self.state in {"parked", "exporting"}:
            known = self.scope if self.state == "exporting" else 0
            machine = self._export_type(self.name_of(len(self.exporters)), known)
            self.exporters.append(Exporter(self, machine))

    def name_of(self, exporter: int) -> str:
        del exporter
        return scope_of(3, 7, 1 << 20)

    def operate(self, action: str) -> None:
        """`retry` or `discard`, of state 2 only; of state 3 the scope is closed first."""
        if self.state == "parked":
            self.state = {"retry": "available", "discard": "discarded"}[action]
        elif self.state == "exporting":
            named = [one for one in self.scopes.values() if one.number == self.scope]
            if named:
                self._closing = action
                named[0].expired = SCOPE_EPOCH_MAX

    def end_export(self) -> None:
        """The owner has applied that the scope is closed."""
        named = [one for one in self.scopes.values() if one.number == self.scope]
        if self._closing and self.state == "exporting" and named and named[0].decided == SCOPE_EPOCH_MAX:
            ended = {"retry": "available", "discard": "discarded"}[self._closing]
            self.state = "exported" if named[0].committed else ended
        self._closing = ""

    def forget(self) -> None:
        """A scope that was not used for long is forgotten."""
        if self.scopes and not self.sent and not self.alive:
            self.scopes.clear()
            self.is_forgotten = True

    @property
    def alive(self) -> list[Exporter]:
        return [one for one in self.exporters if one.is_alive and one.machine.ending is None]

    def kill(self) -> None:
        if self.alive:
            self.dice.choice(self.alive).is_alive = False

    # ---- requests ----------------------------------------------------------------------------------------

    def carry_out(self, position: int) -> None:
        """A request is carried out."""
        exporter, call = self.sent.pop(position)
        answer = self._answer(exporter, call)
        if exporter.call is call:
            exporter.answer = answer
        self.look()

    def lose(self, position: int) -> None:
        """The answer to a COMMIT is lost; its request may be carried out or not."""
        exporter, call = self.sent[position]
        if isinstance(call, Commit) and exporter.call is call:
            if self.dice.random() < 0.5:
                del self.sent[position]
            # What stays in `sent` is carried out later, and its answer is not heard.
            exporter.call = Commit(call.epoch)
            exporter.answer = CommitAnswer.NOT_KNOWN

    def _answer(self, exporter: Exporter, call: Call) -> Event:
        scope = self.scopes.get(exporter.machine.name)
        match call:
            case BeginScope(name):
                return self._begin(exporter, name)
            case StageRows(epoch):
                assert scope is not None
                if scope.driver != exporter.driver:
                    return Fenced()
                if epoch <= scope.decided:
                    return Failed(RuntimeError("the epoch expired"))
                scope.staged.add((exporter.driver, epoch))
                return RowsStaged()
            case Take(number, force):
                return self._take(number, force=force)
            case Commit(epoch):
                return self._commit(exporter, epoch)
            case Mark(number):
                return self._mark(number)
            case DiscardRows(epoch):
                if scope is not None and scope.driver == exporter.driver and epoch > scope.committed:
                    scope.expired = max(scope.expired, epoch)
                return RowsDiscarded()

    def _begin(self, exporter: Exporter, name: str) -> Event:
        if name not in self.scopes:
            self.ids += 1
            self.scopes[name] = Scope(self.ids)
        scope = self.scopes[name]
        scope.driver += 1
        exporter.driver = scope.driver
        return ScopeBegun(scope.number, scope.committed, scope.decided)

    def _take(self, number: int, *, force: bool) -> TakeAnswer:
        if self.state not in {"parked", "exporting"}:
            return TakeAnswer.NOT_PARKED
        if self.state == "exporting" and self.scope != number and not force:
            return TakeAnswer.NOT_KNOWN
        self.state, self.scope = "exporting", number
        return TakeAnswer.TAKEN

    def _commit(self, exporter: Exporter, epoch: int) -> CommitAnswer:
        scope = self.scopes.get(exporter.machine.name)
        if scope is None:
            return CommitAnswer.NOT_KNOWN
        if epoch <= scope.committed:
            return CommitAnswer.COMMITTED
        if scope.driver != exporter.driver:
            return CommitAnswer.FENCED
        if epoch <= scope.expired:
            return CommitAnswer.NOT_KNOWN
        if (exporter.driver, epoch) not in scope.staged:
            self.faults.append(f"epoch {epoch} is committed, and nothing is staged under it")
        scope.committed = epoch
        self.copies += 1
        return CommitAnswer.COMMITTED

    def _mark(self, number: int) -> Event:
        if self.state not in {"parked", "exporting"}:
            return Marked()
        committed = any(one.number == number and one.committed for one in self.scopes.values())
        if self._checks_commit and not committed:
            return Failed(RuntimeError("the scope is not committed"))
        self.state = "exported"
        return Marked()

    # ---- what must hold ----------------------------------------------------------------------------------

    def look(self) -> None:
        """After each event."""
        if self.copies > 1:
            self.faults.append(f"{self.copies} copies")
        if self.copies and self.state in {"available", "discarded"}:
            self.faults.append(f"the rows are {self.state}, and their copy is out")

    def step(self) -> bool:
        """Something that was sent is carried out, or an answer arrives. False: there is nothing."""
        hearers = [one for one in self.alive if one.answer is not None]
        if not self.sent and not hearers:
            return False
        if self.sent and (not hearers or self.dice.random() < 0.5):
            position = self.dice.randrange(len(self.sent))
            if self.dice.random() < 0.1:
                self.lose(position)
            else:
                self.carry_out(position)
        elif hearers:
            self.dice.choice(hearers).hear()
        return True

    def trouble(self) -> None:
        match self.dice.randrange(10):
            case 0:
                self.kill()
            case 1 | 2:
                self.start()
            case 3 if self.dice.random() < 0.3:
                self.operate(self.dice.choice(["retry", "discard"]))
            case 4:
                self.end_export()
            case 5 if self.dice.random() < 0.1:
                self.forget()
            case _:
                pass

    def at_the_end(self) -> None:
        """One exporter after the other, undisturbed, ends what can be ended."""
        while self.step():
            pass
        for _ in range(3):
            self.start()
            while self.step():
                pass
        self.look()
        last = self.exporters[-1].machine.ending if self.exporters else None
        if self.state in {"parked", "exporting"}:
            is_closed = last is Ending.CLOSED
            is_not_known = last is Ending.NOT_KNOWN and self.is_forgotten
            if not is_closed and not is_not_known:
                self.faults.append(f"the range stays {self.state}: {last}")
        if self.state == "exported" and self.copies != 1:
            self.faults.append(f"it counts as exported, with {self.copies} copies")


def walk(seed: int, export_type: type[Export] = Export, *, checks_commit: bool = True) -> list[str]:
    """The faults of one random walk."""
    return walk_in(ParkedWorld(seed, export_type, checks_commit=checks_commit))


def walk_in(world: ParkedWorld) -> list[str]:
    """The same in a world of its own."""
    world.start()
    for _ in range(60):
        world.step()
        world.trouble()
    world.at_the_end()
    return world.faults
