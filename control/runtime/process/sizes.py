"""Parse sizes such as 512MiB. The command line uses this module without the settings, which load slowly."""

from __future__ import annotations

import math
import re
from typing import Final

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B?)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_size(value: object) -> object:
    """Bytes of `512MiB`, `1.5 GB` or a number. Other values are returned: the caller refuses them."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        return value
    unit = (match[2] or "").lower()
    factor = 1 << {"k": 10, "m": 20, "g": 30, "t": 40}[unit[0]] if "i" in unit else _UNITS[unit[:1]]
    size = float(match[1]) * factor
    return int(size) if math.isfinite(size) else value
