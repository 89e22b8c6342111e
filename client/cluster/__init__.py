"""State of the cluster in a client.

table_cache    cache routing tables: receive pushes, refresh, adopt, acknowledge
table_fetches  ask nodes for tables, one after the other where one is behind
watches        open sessions of watches, and give their updates to them
offsets        request log starts, marks and offsets of a time from owners
read_plan      resolve the arguments of a read to offsets of each partition
cursor         keep the position of one partition of a read
"""
