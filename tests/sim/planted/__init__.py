"""Faults put in on purpose: the simulator's checkers must find each, and may not ask which is on."""
