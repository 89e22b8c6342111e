"""Take part in the cluster: heartbeats, removal, changes of members.

members         send heartbeats; at the leader, decide about members and voters
removed_node    whether this node is still a member, by committed metadata
node_commands   commands that change a node, for HTTP and the control address
"""
