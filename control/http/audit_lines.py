"""Build the audit line of an HTTP request."""

from __future__ import annotations

from fastapi import Request

from ringfence.control.runtime.handlers.audit import Line


def line_of(request: Request, who: str, role: str, action: str) -> Line:
    """The line, without status, index and detail."""
    peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
    return Line(who, role, peer, request.method, request.url.path, action)
