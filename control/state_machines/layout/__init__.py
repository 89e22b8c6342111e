"""Layout changes of one leader: partitions split, merge, or are repartitioned.

plan           what to prepare: ranges and places of children
messages       orders to nodes, their answers, and the conditions to execute an order
steps          one transition: observations in, orders and the next entry out
adoption       whether the clients of all live nodes hold the new layout
hand_over      sealed partitions whose owners lack records of them
prune          sealed partitions that may leave the layout
coordinator    all transitions of one leader
policy         automatic splits and merges: decisions and their explanations
policy_memory  loads over windows, as a leader remembers them
hot_keys       slots that make a split useless
"""
