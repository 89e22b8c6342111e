"""Servers of the peers, each a process of its own."""
