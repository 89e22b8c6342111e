"""State of the cluster in a client.

table_cache  routing tables: fetch, receive pushes, refresh, acknowledge
offsets      where a read begins and ends
cursor       one partition of a read
"""
