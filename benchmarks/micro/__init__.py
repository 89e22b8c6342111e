"""pytest-benchmark: the steps of a batch, one by one. `pytest benchmarks`."""
