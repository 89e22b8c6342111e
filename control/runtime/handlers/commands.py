"""Execute commands. Every change of a client or an operator passes `submit`, through whichever door it came.

    authorize -> answer a repeated key -> build the command on the newest state -> propose
              -> wait until it is carried out -> audit

Any node executes a change: the proposer forwards the command to the leader, and the answer follows once this
node has applied the entry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ringfence.control.model.commands import Command
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.tokens import Role
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.audit import CONTROL, DATA, Audit, Line
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.statuses import status_of
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.state_machines.metadata.etags import condition_fault
from ringfence.control.state_machines.metadata.state_machine import request_answer
from ringfence.native.wire import Code


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: name, role and topic prefix of its token.

    A non-empty `prefix` restricts it to topics whose full names begin with the prefix. Without a valid token
    name and prefix are empty, and the role is None.
    """

    name: str = ""
    role: Role | None = None
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Door:
    """The interface that a request came through, in the words of its audit line.

    `method` is DATA, CONTROL, or the method of an HTTP request. `resource` is what is changed, `peer` the
    caller's address if it is known. `status` is that of an answer to a change that is carried out. `purpose`
    says in a refusal what this door does not serve.
    """

    method: str
    resource: str
    peer: str = ""
    status: int = 200
    purpose: str = ""

    def failure(self, error: BaseException) -> tuple[int, str] | None:
        """The status and detail of the answer to `error`; None if the request ends without an answer."""
        return (status_of(error), error.message) if isinstance(error, RequestRefused) else None


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a request carries besides its content: idempotency key, condition, caller, action, interface.

    `action` names the change in the audit log.
    """

    key: RequestKey | None
    condition: Condition | None
    principal: Principal
    action: str
    door: Door

    @property
    def line(self) -> Line:
        """The audit line, without status, index and detail."""
        caller, door = self.principal, self.door
        role = "" if caller.role is None else str(caller.role)
        return Line(caller.name, role, door.peer, door.method, door.resource, self.action)


def at_data_address(caller: Principal, action: str, topic: str) -> RequestContext:
    return RequestContext(None, None, caller, action, Door(DATA, f"topic/{topic}"))


def at_control_address(action: str, resource: str, purpose: str) -> RequestContext:
    return RequestContext(None, None, Principal(), action, Door(CONTROL, resource, purpose=purpose))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change.

    `index` is the entry's; 0 if the request changed nothing, which is not audited. `repeated`: an earlier
    request with the same key made the entry. `faults` are the texts of orders that failed.
    """

    index: int
    result: Result
    repeated: bool = False
    faults: tuple[str, ...] = ()


async def never(_: RequestRefused) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request needs on the state of the moment: commands, or none if `done` is its outcome already.

    The commands are proposed in order. The condition applies to the first one, the key to the last one.
    `topic`: the topic whose owners carry the change out; None for the topic that the entry creates, if any.
    `is_overtaken` gets a refusal; True: the state has changed since, so the plan is built again.
    """

    commands: tuple[Command, ...] = ()
    done: Outcome | None = None
    topic: Topic | None = None
    is_overtaken: Callable[[RequestRefused], Awaitable[bool]] = never


async def plan_of(command: Command) -> Plan:
    """The plan of a command that does not depend on the state."""
    return Plan((command,))


Build = Callable[[], Awaitable[Plan]]
# Waits until the entry at an index, of a plan, is carried out; returns the texts of orders that failed. It
# raises RequestRefused for callers whose answer has no place for faults.
Wait = Callable[[int, Plan], Awaitable[Sequence[str]]]


async def not_at_all(_: int, __: Plan) -> Sequence[str]:
    """Answer once the entry is applied here."""
    return ()


def refuse_faults(wait: Wait, progress: str, code: Code = Code.INTERNAL) -> Wait:
    """`wait`, with the first fault as a refusal that begins with `progress`, the part that is done."""

    async def waited(index: int, plan: Plan) -> Sequence[str]:
        faults = await wait(index, plan)
        if faults:
            raise RequestRefused(code, f"{progress}: {faults[0]}", retry_after_ms=1_000, index=index)
        return ()

    return waited


class Commands:
    """The command service of one node. Refused changes raise RequestRefused."""

    def __init__(self, proposer: RaftProposer, audit: Audit) -> None:
        self._proposer, self._audit = proposer, audit

    async def submit(self, build: Build, context: RequestContext, wait: Wait = not_at_all) -> Outcome:
        """Do the change that `build` plans, once for each key, and write its audit line."""
        self._authorize(context)
        try:
            outcome = await self._run_once(build, context, wait)
        except BaseException as error:
            await self.audit_failure(context, error)
            raise
        if outcome.index:
            status = 202 if outcome.faults else context.door.status
            await self._audit.add(context.line.ended(status, "; ".join(outcome.faults), outcome.index))
        return outcome

    async def audit_done(self, context: RequestContext, index: int) -> None:
        """Write the audit line of a change that was made in an entry with others."""
        await self._audit.add(context.line.ended(context.door.status, "", index))

    async def audit_failure(self, context: RequestContext, error: BaseException) -> None:
        """Write the audit line of a change that failed, or that its door refuses before `submit`."""
        failure = context.door.failure(error)
        if failure is None:
            # The deadline passed, or the client closed the connection. The change may still be executed; a
            # repeat with the same key gets the result.
            self._audit.add_soon(context.line.ended(0, f"no answer was given: {type(error).__name__}"))
            return
        index = error.index if isinstance(error, RequestRefused) else 0
        await self._audit.add(context.line.ended(*failure, index))

    def _authorize(self, context: RequestContext) -> None:
        """Refuse changes at the control address once the cluster has tokens: its requests carry none.

        The engine has authorized requests at a data address, and the admin API those over HTTP.
        """
        if context.door.method == CONTROL and self._proposer.state.tokens:
            purpose = context.door.purpose
            message = f"the cluster has tokens: {purpose} through the admin API with a token (--http)"
            raise RequestRefused(Code.UNAUTHORIZED, message)

    async def _run_once(self, build: Build, context: RequestContext, wait: Wait) -> Outcome:
        """Do the change, unless the log holds the answer to an earlier request with this key and content.

        The first try may have changed the state that `build` checks. A refusal therefore counts only if the
        log has no answer for the key after it.
        """
        if context.key is None:
            return await self._run(build, context, wait)
        await self._proposer.read_barrier()
        recorded = self._recorded(context.key)
        if recorded is not None:
            return recorded
        try:
            return await self._run(build, context, wait)
        except RequestRefused:
            recorded = self._recorded(context.key)
            if recorded is None:
                raise
            return recorded

    async def _run(self, build: Build, context: RequestContext, wait: Wait) -> Outcome:
        while True:
            plan = await build()
            if plan.done is not None:
                # No entry checks the condition, and the log stores no key.
                refusal = condition_fault(self._proposer.state, context.condition)
                if refusal is not None:
                    raise RequestRefused(refusal.code, refusal.message)
                return plan.done
            try:
                applied = await self._propose(plan.commands, context)
            except RequestRefused as refused:
                if not await plan.is_overtaken(refused):
                    raise
            else:
                return await self._outcome(applied, plan, context, wait)

    async def _outcome(self, applied: Applied, plan: Plan, context: RequestContext, wait: Wait) -> Outcome:
        answered = None if context.key is None else self._proposer.state.requests.get(context.key.key)
        if answered is not None and answered.index != applied.index:
            # The first request with this key came while this one ran. Both answers promise the same.
            await wait(answered.index, plan)
            return Outcome(answered.index, applied.result, repeated=True)
        return Outcome(applied.index, applied.result, faults=tuple(await wait(applied.index, plan)))

    async def _propose(self, commands: Sequence[Command], context: RequestContext) -> Applied:
        *before, last = commands
        condition = context.condition
        for command in before:
            await self._proposer.propose(command, expects=condition)
            condition = None
        return await self._proposer.propose(last, request=context.key, expects=condition)

    def _recorded(self, key: RequestKey) -> Outcome | None:
        result = request_answer(self._proposer.state, key)
        if result is None:
            return None
        if isinstance(result, Refused):
            raise RequestRefused(result.code, result.message)
        return Outcome(self._proposer.state.requests[key.key].index, result, repeated=True)
