"""The simulated world: machines with clocks, disks and native nodes, and the network between them."""
