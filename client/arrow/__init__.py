"""Arrow data: check, cast, encode and decode record batches, and choose the partition of each row.

batches       rows of the caller as record batches      pandas_frames     pandas DataFrames as tables
array_checks  validate arrays                           casts, keys       exact types of columns and keys
pieces        split streams into bodies                 partition_choice  unavailable partitions
encode        batches to bodies                         decode            records to batches
body_router   bodies after a split or merge
"""
