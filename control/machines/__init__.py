"""What metadata commands do, and what follows from the state. Pure: values in, values out.

START HERE: `metadata.validate` and `metadata.apply`; the commands' own rules stand in `metadata_cluster`,
`metadata_topics` and `metadata_producers`; `orders.between` says what a node has to do after a change.
"""
