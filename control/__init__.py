"""The control plane: what a node knows, decides and tells; pure Python.

START HERE. Layers, each imports only those below it:

    cli, http    commands of `ringfence`; health and metrics over loopback HTTP
    runtime      settings, start-up, one asyncio loop: requests, orders to the native node, its outcomes
    store        one data directory: identity, lock, journal, snapshot
    machines     metadata commands and what follows from them; pure: no clock, socket, file, thread, chance
    model        frozen values
    invariants   what must hold of a state; tests call it after every step

One command's way: request -> `machines.metadata.validate` -> entry -> journal, fsync ->
`machines.metadata.apply` -> `machines.orders.between(before, after)` -> native node -> outcomes -> answer.
"""
