"""The beginning of an audit line, of a request over HTTP."""

from __future__ import annotations

from fastapi import Request

from ringfence.control.runtime.handlers.audit import Line


def line_of(request: Request, who: str, role: str, action: str) -> Line:
    """Without what came of it."""
    peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
    return Line(who, role, peer, request.method, request.url.path, action)
