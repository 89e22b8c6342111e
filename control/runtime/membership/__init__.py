"""Take part in the cluster: heartbeats, removal, commands about members.

joining         bind the control address, and register a new store as a node
own_start       end a process whose identity another process has
members         send heartbeats; at the leader, propose changes of members and voters
beats           heartbeats: their fields by the level of the cluster
cluster_clock   exchange clocks by heartbeats, and bound the times of records and proposals
removed_node    decide from committed metadata whether a node is still a member
node_commands   build commands that change a node, for HTTP and the control address
"""
