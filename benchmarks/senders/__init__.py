"""Senders in Python, each a process of its own that prints one JSON object as `loadgen` does."""
