# cython: boundscheck=False, wraparound=False
"""Headers of requests and answers, packed and read in place."""

cimport wire


def header_bytes() -> int:
    """Length of a header."""
    return wire.HEADER_BYTES
