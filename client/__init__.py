"""Durable, partitioned ingest of Arrow record batches, exactly once."""
