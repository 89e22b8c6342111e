"""The path of every HTTP mutation: read key and condition from the headers, submit, answer with a receipt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from fastapi import Request, Response
from starlette.responses import JSONResponse

from ringfence.control.http.audit_lines import peer_of
from ringfence.control.http.authorize import Access, check_topic, principal
from ringfence.control.http.problems import Problem, of_refusal
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import TopicCreated
from ringfence.control.runtime.handlers.commands import Build, Door, Outcome, RequestContext, Wait
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.statuses import status_of
from ringfence.control.state_machines.metadata.etags import tag_of
from ringfence.native.wire import Code

KEY_CHARACTERS_MAX: Final = 200
KEY_HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "Idempotency-Replayed"

# Status and body of an answer, made of the outcome. Problem: the change ended without effect.
Shown = Callable[[Outcome], tuple[int, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class HttpDoor(Door):
    """The admin API. Handlers raise problems too."""

    def failure(self, error: BaseException) -> tuple[int, str] | None:
        if isinstance(error, Problem):
            return error.status, error.detail
        if isinstance(error, RequestRefused) and error.code == Code.CONFLICT:
            return status_of(error), _key_reused(error)
        return Door.failure(self, error)


class Mutations:
    """The mutations of one node. Every mutation goes through `change`."""

    def __init__(self, node: Node, access: Access) -> None:
        self.node, self.access = node, access

    async def change(
        self,
        request: Request,
        action: str,
        build: Build,
        *,
        wait: Wait | None = None,
        resource: str | None = None,
        content: bytes = b"",
        status: int = 200,
        path: str | None = None,
        topic: str | None = None,
        shown: Shown | None = None,
        is_conditional: bool = True,
    ) -> Response:
        """Submit a change, and answer with a receipt, or with what `shown` makes of the outcome.

        Args:
            request: carries key and condition in its headers.
            action: the name of the change in the audit log.
            build: plans the change.
            wait: waits until the change is carried out; by default at this node and at the topic's owners.
            resource: the resource that a condition (If-Match) refers to; None if the change creates it.
            content: the body. A key stands for one method, path and content.
            status: the status of the answer on success.
            path: the path of the resource that is created or changed; None: the path of the request.
            topic: the full name of a topic that only the body names; the caller needs a right to it.
            shown: status and body of the answer; for a change that goes on after its entry.
            is_conditional: If-Match is checked against `resource`; False: the plan checks it.
        """
        commands, caller = self.node.handlers.commands, principal(request)
        door = HttpDoor(request.method, request.url.path, peer_of(request), status)
        context = RequestContext(None, None, caller, action, door)
        try:
            if topic is not None:
                check_topic(caller, topic)
            key = _key(request, caller.name, content)
            condition = self.condition(request, resource) if is_conditional else None
        except Problem as problem:
            await commands.audit_failure(context, problem)
            raise
        context = replace(context, key=key, condition=condition)
        try:
            outcome = await commands.submit(build, context, wait or self.node.handlers.completion.carried_out)
        except RequestRefused as refusal:
            if refusal.code == Code.CONFLICT:
                raise Problem(422, "key-reused", _key_reused(refusal)) from refusal
            raise of_refusal(refusal) from refusal
        if shown is not None:
            status, body = shown(outcome)
            return JSONResponse(body, status, self._headers(outcome))
        return self._receipt(outcome, 202 if outcome.faults else status, path or request.url.path)

    def _headers(self, outcome: Outcome) -> dict[str, str]:
        headers = {"Cache-Control": "no-store", "X-Ringfence-Index": str(self.node.proposer.applied.index)}
        if outcome.repeated:
            headers[REPLAYED_HEADER] = "true"
        return headers

    def _receipt(self, outcome: Outcome, status: int, path: str) -> Response:
        """The receipt. It depends on the request and the entry only, so a repeat gets the same bytes."""
        body: dict[str, object] = {"index": outcome.index, "resource": path}
        headers = self._headers(outcome)
        if isinstance(outcome.result, TopicCreated):
            body["topic"] = outcome.result.topic
        if status == 201:
            headers["Location"] = path
        if outcome.faults:
            body["pending"] = list(outcome.faults)
        return JSONResponse(body, status, headers)

    def condition(self, request: Request, resource: str | None) -> Condition | None:
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


def _key_reused(refusal: RequestRefused) -> str:
    return f"{KEY_HEADER}: {refusal.message}"
