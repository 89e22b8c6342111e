"""Consensus: etcd's interaction scripts, clusters under faults, limits, planted bugs."""
