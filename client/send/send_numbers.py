"""Number the sends of a producer."""

from __future__ import annotations

import operator

from ringfence.common.arguments import NUMBER_MAX
from ringfence.native.errors import InvalidArgumentError


class SendNumbers:
    """Not thread-safe: the producer draws numbers under its lock."""

    def __init__(self, before: int) -> None:
        """`before`: the greatest number of the predecessor."""
        self._before = before
        self.last = 0
        """The last number drawn; 0 before the first."""

    def draw(self, number: int | None) -> int:
        """The number of a send: the caller's own, or one more than the last.

        Raises:
            InvalidArgumentError: it is not an integer, does not ascend, or is above the maximum.
        """
        if number is None:
            number = max(self.last, self._before) + 1
            if number > NUMBER_MAX:
                raise InvalidArgumentError(
                    "the last send has the maximum number; open a producer with another name, and start "
                    "with a lower number",
                    last=number - 1,
                    number_max=NUMBER_MAX,
                )
        else:
            try:
                number = operator.index(number)
            except TypeError as error:
                raise InvalidArgumentError(
                    "the number of a send must be an integer", number=repr(number)
                ) from error
            if not self.last < number <= NUMBER_MAX:
                raise InvalidArgumentError(
                    "the number of a send must be above the last one",
                    number=number,
                    last=self.last,
                    number_max=NUMBER_MAX,
                )
        self.last = number
        return number
