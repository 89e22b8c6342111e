"""Clients of a simulated cluster: producers, readers, transactional writers, administrators."""
