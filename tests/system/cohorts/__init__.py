"""Members of cohorts and the nodes that serve them, as real processes."""
