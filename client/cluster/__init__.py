"""What a client learns from the cluster: routing tables, and the offsets where a read begins and ends."""
