"""The admin API: health, metrics, reads and changes over HTTP. `endpoint.beside` runs it next to a node.

START HERE: `application` puts it together; a request passes, in this order:

    connections, heads, limits    bounds of connections; HEAD; size, depth, number and deadline of requests
    access, refused               who asks, with which role; audit lines of refused changes
    reads, events, metrics        what can be read; the stream of events; Prometheus
    changes, cluster, partitions, producers, rebalance, scopes    what can be changed
    mutations                          the one way of a change: key, condition, receipt, audit line (`lines`)
    problems, shapes, described   errors (RFC 9457); bodies; what OpenAPI says of all operations
"""
