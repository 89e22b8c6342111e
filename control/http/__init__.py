"""Serve the admin API over HTTP: health, metrics, reads, changes. `endpoint.beside` runs it next to a node.

START HERE: `application` assembles the parts. A request passes them in this order:

    connections, head_requests, limits     limits of connections; HEAD; size, depth, number and deadline of
                                           requests
    authorize, refusal_audit               authenticate and authorize the caller; audit refused changes
    read_routes, event_stream              operations that read; the stream of events
    topic_routes, node_routes, token_routes, level_routes, layout_routes, layout_auto_routes,
    partition_routes, producer_routes, rebalance_routes, scope_routes, cohort_routes,
    parked_routes
                                           operations that change something, and reads of the same resources
    mutation_pipeline, audit_lines         the path of every change: key, condition, receipt, audit line
    problems, openapi_bodies, openapi_parts    errors (RFC 9457); bodies; OpenAPI parts of all operations
    topic_bodies, layout_bodies, cohort_bodies
                                           bodies of topics with their figures, one or a page; of layouts; of
                                           cohorts
"""
