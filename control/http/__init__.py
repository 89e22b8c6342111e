"""Serve the admin API over HTTP: health, metrics, reads, changes. `endpoint.beside` runs it next to a node.

START HERE: `application` assembles the parts. A request passes them in this order:

    connections, head_requests, limits     limits of connections; HEAD; size, depth, number and deadline of
                                           requests
    access, refusal_audit                  authenticate and authorize the caller; audit refused changes
    reads, events, metrics                 operations that read; the stream of events; Prometheus
    writes, cluster, layouts, partitions, producers, rebalance, scopes    operations that change something
    mutations, audit_lines                 the path of every change: key, condition, receipt, audit line
    metric_families, layout_metrics        samples of a metric; metrics of layouts
    problems, openapi_bodies, openapi_parts    errors (RFC 9457); bodies; OpenAPI parts of all operations
    topic_bodies, layout_bodies            bodies of topics with their figures, one or a page; of layouts
"""
