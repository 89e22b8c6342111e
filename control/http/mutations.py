"""Every change over HTTP passes here: who, the key, the condition, the answer, the line in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final

from fastapi import Request, Response
from starlette.responses import JSONResponse

from ringfence.control.http.access import Access, principal
from ringfence.control.http.audit_lines import line_of
from ringfence.control.http.problems import Problem, of_refusal
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import TopicCreated
from ringfence.control.runtime.handlers.admin import Outcome, RequestContext
from ringfence.control.runtime.node import Node
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.state_machines.metadata.etags import tag_of
from ringfence.native.wire import Code

KEY_CHARACTERS_MAX: Final = 200
KEY_HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "Idempotency-Replayed"

Work = Callable[[RequestContext], Awaitable[Outcome]]


class Mutations:
    """One node's. `change` is the only way to a mutation."""

    def __init__(self, node: Node, access: Access) -> None:
        self.node, self.access, self.audit = node, access, node.audit

    async def change(
        self,
        request: Request,
        action: str,
        work: Work,
        *,
        resource: str | None = None,
        content: bytes = b"",
        status: int = 200,
        path: str | None = None,
        topic: str | None = None,
    ) -> Response:
        """Do `work` once, and say what it gave.

        Args:
            request: carries key and condition in its headers.
            action: what it is called in the audit log.
            work: proposes the change.
            resource: what a condition (If-Match) is about; None for what is only being made.
            content: of the body; with method and path it is what a key stands for.
            status: of the answer, if all went well.
            path: of what is made or changed; None: of the request.
            topic: the full name of one that only the body names; who asks must have a right to it.
        """
        who = principal(request)
        line = line_of(request, who.name, str(who.role), action)
        try:
            if topic is not None:
                who.check(topic)
            key = _key(request, who.name, content)
            context = RequestContext(key, self._condition(request, resource))
            outcome = await self.node.admin.run_once(key, lambda: work(context))
        except RequestRefused as refusal:
            problem = _other_content(refusal) or of_refusal(refusal)
            await self.audit.add(line.ended(problem.status, problem.detail))
            raise problem from refusal
        except Problem as problem:
            await self.audit.add(line.ended(problem.status, problem.detail))
            raise
        except BaseException as error:
            # Its deadline, or who asked hung up: it may go on, and a repeat with its key tells.
            self.audit.add_soon(line.ended(0, f"no answer was given: {type(error).__name__}"))
            raise
        answered = 202 if outcome.faults else status
        await self.audit.add(line.ended(answered, "; ".join(outcome.faults), outcome.index))
        return self._receipt(outcome, answered, path or request.url.path)

    def _receipt(self, outcome: Outcome, status: int, path: str) -> Response:
        """Nothing but what the request and the entry say: a repeat gives the same bytes."""
        told: dict[str, object] = {"index": outcome.index, "resource": path}
        headers = {"Cache-Control": "no-store", "X-Ringfence-Index": str(self.node.proposer.applied.index)}
        if isinstance(outcome.result, TopicCreated):
            told["topic"] = outcome.result.topic
        if status == 201:
            headers["Location"] = path
        if outcome.faults:
            told["pending"] = list(outcome.faults)
        if outcome.repeated:
            headers[REPLAYED_HEADER] = "true"
        return JSONResponse(told, status, headers)

    def _condition(self, request: Request, resource: str | None) -> Condition | None:
        """What If-Match says; `*` asks for no more than that the resource is there."""
        given = request.headers.getlist("if-match")
        if not given:
            return None
        if resource is None:
            raise Problem(412, "no-version", "If-Match: what is only being made has no version to match")
        text = given[0].strip()
        if text == "*" and len(given) == 1:
            tag = tag_of(self.node.proposer.state, resource)
            if tag is None:
                raise Problem(412, "gone", f"If-Match: {resource} is not there")
            return Condition(resource, tag)
        quoted = len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1] and "," not in text
        if len(given) > 1 or not quoted:
            detail = "If-Match: one strong ETag as it was given, with its quotes, or `*`"
            raise Problem(400, "bad-condition", detail)
        return Condition(resource, text[1:-1][:200])


def _key(request: Request, who: str, content: bytes) -> RequestKey | None:
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return None
    key = given[0].strip()
    if len(given) > 1 or not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isascii() or not key.isprintable():
        detail = f"{KEY_HEADER}: one, of 1 to {KEY_CHARACTERS_MAX} printable ASCII characters"
        raise Problem(400, "bad-key", detail)
    digest = blake2b(digest_size=16)
    for part in (request.method.encode(), request.url.path.encode("utf-8", "replace"), content):
        digest.update(len(part).to_bytes(8, "big") + part)
    # In front of the key: two who draw the same one do not meet.
    return RequestKey(f"{who}\n{key}", digest.digest())


def _other_content(refusal: RequestRefused) -> Problem | None:
    if refusal.code != Code.CONFLICT:
        return None
    return Problem(422, "key-reused", f"{KEY_HEADER}: {refusal.message}")
