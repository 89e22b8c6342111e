"""A member of a cohort (consumer group): it reads partitions that it holds, and acknowledges rows.

member         START HERE: the member as a state machine: events in, calls out; pure
  session      join, attach, plans
  holding      which partitions it has       fetching       rows that it asks for
  giving       what the application gets     settle         acknowledgements, merged
  beats        leases of partitions          gate           one partition
  state        what these share              routes         the node that has a partition's gate
values, calls  places, options; what a member asks nodes for, and their replies
"""
