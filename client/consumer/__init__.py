"""A member of a cohort (consumer group): it reads partitions that it holds, and acknowledges rows.

consumer       START HERE: the iterator        aio_consumer   the same for asyncio
door           `client.consumer(...)`          settings       its arguments
core           one step of the application     bell           wakes it
any_core       what the modes share            queue_core     one step in QUEUE
delivery       rows of a QUEUE in hand         queue_settings its arguments
link           runs the member on its I/O thread            stores         positions in a store
bodies         the bytes of calls and replies  clock          also runs while the machine sleeps
member         the member as a state machine: events in, calls out; pure
  session      join, attach, plans
  holding      which partitions it has       fetching       rows that it asks for
  giving       what the application gets     settle         acknowledgements, merged
  absence      leave for a while             consuming      what a transaction takes of it
  beats        leases of partitions          gate           one partition
  state        what these share              routes         the node that has a partition's gate
any_member     what drivers need of it         queue_member   START HERE for QUEUE; pure
  queue_fetching  rows on lease                queue_hands    rows that the application has
  queue_telling   what became of rows          queue_rows     ranges of rows
  queue_pace      when a member asks for more
reporting      a reader that reads elsewhere, as a member   reporter       its state machine; pure
taking         the consumer's part in a transaction
values, calls  places, options; what a member asks nodes for, and their replies
queue_calls, queue_bodies, queue_link          the same for QUEUE
parked         what a QUEUE has put aside      parked_rows    these rows with the columns of an export
parked_export  one export; pure                exporter       carries it out
dead_letters   when a member exports; pure     dead_letter_thread  carries it out
lost_rows      what who waits for acknowledgements hears of rows that others have
write_right    may the token write a topic
"""
