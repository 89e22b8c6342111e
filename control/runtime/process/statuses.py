"""Map refusals to HTTP statuses, for HTTP answers and for audit lines of all interfaces."""

from __future__ import annotations

from typing import Final

from ringfence.control.runtime.process.errors import NoMajorityError, RequestRefused
from ringfence.native.wire import Code

# Refusals of the runtime; a code that is missing here is a defect. 409: the cluster's state forbids the
# change. 412: the change was meant for another version. 422: no cluster accepts the request. INTERNAL: a
# reason outside of the request, for example that another node does not answer.
STATUS_OF: Final[dict[Code, int]] = {
    Code.TOO_LARGE: 413,
    Code.BAD_BODY: 422,
    Code.UNSUPPORTED_TYPE: 422,
    Code.WRONG_SCHEMA: 422,
    Code.INVALID_ARGUMENT: 422,
    Code.UNKNOWN_TOPIC: 404,
    Code.UNKNOWN_PARTITION: 404,
    Code.UNKNOWN_COHORT: 404,
    Code.FENCED_MEMBER: 409,
    Code.NOT_ASSIGNED: 409,
    Code.STALE_CLAIM: 409,
    Code.CONFLICT: 422,
    Code.TOO_OLD: 412,
    Code.ALREADY_EXISTS: 409,
    Code.QUARANTINED: 409,
    Code.TOO_FEW_REPLICAS: 409,
    Code.HELD: 409,
    Code.MOVED: 409,
    Code.FENCED_PRODUCER: 409,
    Code.UNAUTHORIZED: 403,
    Code.OVERLOADED: 429,
    Code.NOT_SUPPORTED: 422,
    Code.UNSUPPORTED_VERSION: 409,
    Code.DISK_FULL: 507,
    Code.STORAGE_FAILED: 503,
    Code.STOPPING: 503,
    Code.DEADLINE: 504,
    Code.UNKNOWN_OUTCOME: 504,
    Code.INTERNAL: 503,
}


def status_of(refusal: RequestRefused) -> int:
    """The HTTP status of `refusal`: 500 for a defect, 503 if no majority answers."""
    return 503 if isinstance(refusal, NoMajorityError) else STATUS_OF.get(refusal.code, 500)
