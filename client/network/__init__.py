"""The I/O thread with its connections, requests, and failover to another node."""
