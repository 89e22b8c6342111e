from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

def slots(batch: object, key: str | Sequence[str], *, level: int = -1) -> NDArray[np.uint16]:
    """Slot of every row."""

def hash64(batch: object, key: str | Sequence[str], *, level: int = -1) -> NDArray[np.int64]:
    """Spark SQL's `xxhash64(key...)` of every row."""

def xxh64(data: Buffer, seed: int = 0) -> int:
    """Plain XXH64 of the bytes."""
