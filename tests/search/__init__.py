"""Explicit-state search: every state that the protocol of reassignments can reach in a small world."""
