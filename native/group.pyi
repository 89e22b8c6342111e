import numpy as np
from numpy.typing import NDArray

def rows_by_partition(
    slots: NDArray[np.uint16], table: NDArray[np.uint16], count: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Row numbers grouped by partition (order, bounds); the batch's order is kept within each."""
