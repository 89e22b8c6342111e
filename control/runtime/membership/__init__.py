"""Take part in the cluster: heartbeats, removal, commands about members.

members         send heartbeats; at the leader, propose changes of members and voters
removed_node    decide from committed metadata whether a node is still a member
node_commands   build commands that change a node, for HTTP and the control address
"""
