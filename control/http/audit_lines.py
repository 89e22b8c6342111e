"""Describe HTTP requests in the words of the audit log."""

from __future__ import annotations

from fastapi import Request

from ringfence.control.runtime.handlers.audit import Line


def line_of(request: Request, who: str, role: str, action: str) -> Line:
    """The line, without status, index and detail."""
    return Line(who, role, peer_of(request), request.method, request.url.path, action)


def peer_of(request: Request) -> str:
    """The caller's address; empty if it is not known."""
    return "" if request.client is None else f"{request.client.host}:{request.client.port}"
