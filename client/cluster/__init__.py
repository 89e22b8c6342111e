"""State of the cluster in a client.

table_cache  cache routing tables: fetch, receive pushes, refresh, acknowledge
offsets      resolve `start` and the end of a read to offsets of each partition
cursor       keep the position of one partition of a read
"""
