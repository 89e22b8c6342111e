"""Real processes, their hosts, disks and networks, load on them, and clients that speak by hand."""
