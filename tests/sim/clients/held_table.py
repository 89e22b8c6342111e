"""The table that a simulated client holds, by the rule of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.common.adoption import Held, Offer, Verdict, judge

if TYPE_CHECKING:
    from ringfence.common.routing import Layout


def newest(held: Layout | None, offered: Layout) -> Layout:
    """The layout to keep. A doubtful one is left; the simulated client asks again when it is redirected."""
    if held is None:
        return offered
    verdict = judge(Held(held, held.generation), Offer(offered))
    return offered if verdict is Verdict.APPLY else held
