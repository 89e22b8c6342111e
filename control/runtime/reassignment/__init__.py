"""Carry out moves of partitions and changes of owners.

coordinator    the leader's side: orders to nodes, entries to propose
participant    a node's side: execute orders of the leader, answer with progress
order_batches  orders to one node in one question
"""
