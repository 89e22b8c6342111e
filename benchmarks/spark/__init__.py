"""What Spark costs with ringfence. START HERE: `python -m benchmarks.spark`.

jobs.py       one function a way: rows in, rows out, a stream; each does it once
latency.py    a stream at half of its greatest rate: from a send to its row in another topic
__main__.py   turns of all ways, one after the other, medians, ratios, the record
"""
