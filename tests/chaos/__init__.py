"""A cluster of real processes that is harmed while its partitions move: `python -m tests.chaos`."""
