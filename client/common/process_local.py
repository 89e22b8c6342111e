"""Base of objects that belong to one process and cannot be pickled."""

from __future__ import annotations


class ProcessLocal:
    """Has sockets and a thread; pickling it raises TypeError with advice."""

    __slots__ = ()

    def __reduce__(self) -> str:
        raise TypeError(
            f"a {type(self).__name__} of ringfence stays in its process and cannot be pickled: give the "
            "other process the node's address, and call ringfence.connect(address) there"
        )
