"""Health and metrics over HTTP, for probes and scrapers. `endpoint.beside` runs it next to a node."""
