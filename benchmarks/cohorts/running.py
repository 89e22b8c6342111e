"""A server that runs, with the topic of the story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

TOPIC: Final = "story"
GROUP: Final = "group"
ANSWER_S: Final = 60.0

Send = Callable[[int, pa.RecordBatch], None]
"""(stream, rows): returns when the message is under way."""


@dataclass
class Running:
    """A server. `flush` waits until all that was sent is acknowledged, and raises what failed."""

    address: str
    send: Send
    flush: Callable[[], None]
