"""Divide a number by weights: each key gets the floor or the ceiling of its exact share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


def portions(
    total: int,
    weights: Mapping[K, int],
    *,
    prefer: Callable[[K, int], Any],
    least: Mapping[K, int] | None = None,
    most: Mapping[K, int] | None = None,
) -> dict[K, int]:
    """The part of `total` for each key.

    Shares are exact (integers, no rounding errors). The remainder after the floors goes, one each, to the
    keys with the smallest `prefer(key, floor)`, except to keys with a whole share. A key whose share is
    outside of `least` to `most` gets that bound, and the others divide the rest.

    Raises:
        ValueError: the bounds leave no room for `total`.
    """
    bound = _bounded(total, weights, least or {}, most or {})
    free = {key: weight for key, weight in weights.items() if key not in bound}
    left = total - sum(bound.values())
    if not free:
        if left:
            raise ValueError(f"{total} exceeds the bounds of {len(weights)} keys by {left}")
        return bound
    whole = sum(free.values())
    portion = {key: left * weight // whole for key, weight in free.items()}
    remainder = left - sum(portion.values())
    broken = [key for key, weight in free.items() if left * weight % whole]
    for key in sorted(broken, key=lambda key: prefer(key, portion[key]))[:remainder]:
        portion[key] += 1
    return {**bound, **portion}


def _bounded(
    total: int, weights: Mapping[K, int], least: Mapping[K, int], most: Mapping[K, int]
) -> dict[K, int]:
    """Keys whose share is outside of their bounds, with the bound that applies.

    As in the layout of flexible boxes (CSS Flexbox, 9.7), each turn compares the keys below their bounds
    with the keys above. It fixes only the kind with the greater sum of differences: fixing one kind moves
    the shares of the other towards its bounds. Each turn fixes a key, so the loop ends.
    """
    fixed: dict[K, int] = {}
    free = dict(weights)
    while free:
        left, whole = total - sum(fixed.values()), sum(free.values())
        low = {
            key: least[key]
            for key, weight in free.items()
            if key in least and left * weight < least[key] * whole
        }
        high = {
            key: most[key]
            for key, weight in free.items()
            if key in most and left * weight > most[key] * whole
        }
        if not low and not high:
            return fixed
        missing = sum(bound * whole - left * free[key] for key, bound in low.items())
        excess = sum(left * free[key] - bound * whole for key, bound in high.items())
        fixed |= low if missing >= excess else {}
        fixed |= high if excess >= missing else {}
        free = {key: weight for key, weight in free.items() if key not in fixed}
    return fixed
