"""Carry out moves of partitions and changes of owners.

leader_loop    the leader's side: send orders to nodes, propose entries
participant    a node's side: execute the leader's orders, answer with progress
order_sender   send an order to its node, which may be this one
order_batches  send orders for one node in one request
"""
