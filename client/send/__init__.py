"""Sending: from rows to outcomes.

inflight           START HERE: the rules of exactly-once; pure    partition_queue  order in a partition
reroute            splits, merges: what goes where; pure
sender             runs them on the I/O thread                      publish_headers  cached header fields
linger, coalesce   combine small sends                     budget           limit of pending bytes
send_future        the future of a send    outcomes         pending sends, failures
send_numbers       numbers of sends                                 exit_flush       flush at interpreter exit
stager             stages rows for a scope                          staging_requests its pending requests
failures           errors of sends                                  wait_reasons     why sends are pending
"""
