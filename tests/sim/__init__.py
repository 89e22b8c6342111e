"""Seeded simulation in virtual time: production code, simulated disk, network and clock."""
