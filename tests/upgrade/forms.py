"""Fields of what level 0 writes and sends, by type: `python -m tests.upgrade.forms` prints them.

tests/upgrade/data/forms.json is what e1e0e05 printed. A field that came later has the default UNSET, or
stands in an `ADDED_BY_LEVEL_n`: it is left out of the bytes then. Results of later levels do not exist then.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import inspect

from ringfence.control.consensus.messages import ConfigurationState, Message
from ringfence.control.model import results, state
from ringfence.control.runtime.membership.beats import Beat
from ringfence.control.transport.envelope import Envelope

ADDED: frozenset[str] = frozenset().union(
    *(getattr(state, f"ADDED_BY_LEVEL_{level}", frozenset()) for level in (1, 2, 3))
)
RESULTS: frozenset[str] = getattr(results, "RESULTS_OF_LEVEL_3", frozenset())


def forms() -> dict[str, list[str]]:
    """Field names of the metadata state and all in it, of heartbeats, envelopes and messages of consensus."""
    found: dict[str, list[str]] = {}
    for kind in (state.MetadataState, Beat, Envelope, Message, ConfigurationState):
        _walk(inspect.type_info(kind), found)
    return dict(sorted(found.items()))


def _walk(info: Any, found: dict[str, list[str]]) -> None:
    if isinstance(info, inspect.StructType):
        name = info.cls.__name__
        if name in found or name in RESULTS:
            return
        outside = ADDED if info.cls is state.MetadataState else frozenset()
        outside |= {name for name, text in info.cls.__annotations__.items() if "UnsetType" in str(text)}
        found[name] = [field.encode_name for field in info.fields if field.encode_name not in outside]
        for field in info.fields:
            if field.encode_name not in outside:
                _walk(field.type, found)
        return
    for part in ("types", "item_types"):
        for inner in getattr(info, part, ()):
            _walk(inner, found)
    for part in ("item_type", "key_type", "value_type"):
        if hasattr(info, part):
            _walk(getattr(info, part), found)


if __name__ == "__main__":
    print(json.dumps(forms(), indent=0))
