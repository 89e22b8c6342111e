"""A member of a cohort (consumer group): it reads partitions that it holds, and acknowledges rows.

consumer       START HERE: the iterator        aio_consumer   the same for asyncio
door           `client.consumer(...)`          settings       its arguments
core           one step of the application     bell           wakes it
link           runs the member on its I/O thread            stores         positions in a store
bodies         the bytes of calls and replies  clock          also runs while the machine sleeps
member         the member as a state machine: events in, calls out; pure
  session      join, attach, plans
  holding      which partitions it has       fetching       rows that it asks for
  giving       what the application gets     settle         acknowledgements, merged
  absence      leave for a while             consuming      what a transaction takes of it
  beats        leases of partitions          gate           one partition
  state        what these share              routes         the node that has a partition's gate
taking         the consumer's part in a transaction
values, calls  places, options; what a member asks nodes for, and their replies
"""
