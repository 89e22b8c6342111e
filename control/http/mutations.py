"""The path of every HTTP mutation: authorize, deduplicate by key, check If-Match, execute, audit."""

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
    """The mutations of one node. Every mutation goes through `change`."""

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
        """Do `work` once, audit it, and answer with a receipt.

        Args:
            request: carries key and condition in its headers.
            action: the name of the change in the audit log.
            work: proposes the change.
            resource: the resource that a condition (If-Match) refers to; None if the change creates it.
            content: the body. A key stands for one method, path and content.
            status: the status of the answer on success.
            path: the path of the resource that is created or changed; None: the path of the request.
            topic: the full name of a topic that only the body names; the caller needs a right to it.
        """
        caller = principal(request)
        line = line_of(request, caller.name, str(caller.role), action)
        try:
            if topic is not None:
                caller.check(topic)
            key = _key(request, caller.name, content)
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
            # The deadline passed, or the client closed the connection. The change may still be executed; a
            # repeat with the same key gets the result.
            self.audit.add_soon(line.ended(0, f"no answer was given: {type(error).__name__}"))
            raise
        final_status = 202 if outcome.faults else status
        await self.audit.add(line.ended(final_status, "; ".join(outcome.faults), outcome.index))
        return self._receipt(outcome, final_status, path or request.url.path)

    def _receipt(self, outcome: Outcome, status: int, path: str) -> Response:
        """The receipt. It depends on the request and the entry only, so a repeat gets the same bytes."""
        body: dict[str, object] = {"index": outcome.index, "resource": path}
        headers = {"Cache-Control": "no-store", "X-Ringfence-Index": str(self.node.proposer.applied.index)}
        if isinstance(outcome.result, TopicCreated):
            body["topic"] = outcome.result.topic
        if status == 201:
            headers["Location"] = path
        if outcome.faults:
            body["pending"] = list(outcome.faults)
        if outcome.repeated:
            headers[REPLAYED_HEADER] = "true"
        return JSONResponse(body, status, headers)

    def _condition(self, request: Request, resource: str | None) -> Condition | None:
        """The condition of If-Match; `*` requires only that the resource exists."""
        headers = request.headers.getlist("if-match")
        if not headers:
            return None
        if resource is None:
            detail = (
                "If-Match: the request creates a resource, which has no version to match; drop the header"
            )
            raise Problem(412, "no-version", detail)
        text = headers[0].strip()
        if text == "*" and len(headers) == 1:
            tag = tag_of(self.node.proposer.state, resource)
            if tag is None:
                raise Problem(412, "gone", f"If-Match: {resource} does not exist")
            return Condition(resource, tag)
        is_quoted = len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1] and "," not in text
        if len(headers) > 1 or not is_quoted:
            detail = "If-Match: send one strong ETag as the read returned it, with its quotes, or `*`"
            raise Problem(400, "bad-condition", detail)
        return Condition(resource, text[1:-1][:200])


def _key(request: Request, caller: str, content: bytes) -> RequestKey | None:
    headers = request.headers.getlist(KEY_HEADER)
    if not headers:
        return None
    key = headers[0].strip()
    is_sound = 0 < len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()
    if len(headers) > 1 or not is_sound:
        detail = f"{KEY_HEADER}: send one key of 1 to {KEY_CHARACTERS_MAX} printable ASCII characters"
        raise Problem(400, "bad-key", detail)
    digest = blake2b(digest_size=16)
    for part in (request.method.encode(), request.url.path.encode("utf-8", "replace"), content):
        digest.update(len(part).to_bytes(8, "big") + part)
    # The caller's name is part of the key, so equal keys of two callers do not collide.
    return RequestKey(f"{caller}\n{key}", digest.digest())


def _other_content(refusal: RequestRefused) -> Problem | None:
    if refusal.code != Code.CONFLICT:
        return None
    return Problem(422, "key-reused", f"{KEY_HEADER}: {refusal.message}")
