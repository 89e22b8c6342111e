"""Sending: from rows to outcomes. `inflight.py` has the rules; `sender.py` runs them on the I/O thread."""
