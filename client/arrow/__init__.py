"""Arrow data: check, cast, encode and decode record batches, and choose the partition of each row."""
