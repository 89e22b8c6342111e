"""Run consensus in one process: disk, network, clock, proposals.

replica              drive the Raft core: carry out its effects, feed it events and ticks
proposer             propose a command from any node, so that it is applied once
proposer_interface   the interface of consensus for the rest of the control plane
level_gate           refuse commands that nodes of an older program do not know
order_terms          check the terms of orders between nodes
entry_listeners      call the parts of a node for each applied entry
recordings           write recordings of consensus for `ringfence debug replay`
"""
