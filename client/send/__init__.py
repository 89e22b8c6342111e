"""Sending: from rows to outcomes.

inflight           START HERE: the rules of exactly-once; pure    partition_queue  order in a partition
reroute            splits, merges: what goes where; pure
sender             runs them on the I/O thread                      publish_headers  cached header fields
linger, coalesce   combine small sends                     budget           limit of pending bytes
send_future        the future of a send    outcomes         pending sends, failures
send_numbers       numbers of sends                                 exit_flush       flush at interpreter exit
resume, resuming   resume points; what a successor leaves out
stager             stages rows for a scope                          stage_sender     sends its batches
restage            rows of sealed partitions, staged again
failures           errors of sends                                  wait_reasons     why sends are pending
"""
