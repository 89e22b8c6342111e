"""The client over real sockets, against a node in Python."""
