"""What belongs to one process: it says so to those who would send it to another."""

from __future__ import annotations


class Local:
    """Has sockets and a thread: pickle, and what uses it, is refused with the way out."""

    __slots__ = ()

    def __reduce__(self) -> str:
        raise TypeError(
            f"a {type(self).__name__} of ringfence stays in its process and cannot be pickled: give the "
            "other process the node's address, and call ringfence.connect(address) there"
        )
