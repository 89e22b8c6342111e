"""Members of the cluster.

liveness      heartbeats in, FailNode and RecoverNode out
voters        choose the nodes that vote on the metadata log: 1, 3 or 5
agreement     compare state hashes of all nodes
cluster_time  estimate the cluster's time from the nodes' clocks
"""
