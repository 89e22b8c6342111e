"""Consensus at work in one process.

replica              the Raft core with its disk, network and clock
proposer             propose a command from any node; applied once
proposer_interface   what the rest of the control plane may use of consensus
level_gate           refuse commands that nodes of an older program do not know
recordings           recordings of consensus for `ringfence debug replay`
"""
