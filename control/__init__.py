"""The control plane of a node, in pure Python.

START HERE. Layers, each imports only those below it:

    cli, http       commands of `ringfence`; health and the admin API over HTTP
    metrics         every metric of a node, and their text format
    runtime         settings, start-up, one asyncio loop: requests, orders to the native node, its outcomes
    store           one data directory: identity, lock, journal, snapshot
    state_machines  apply metadata commands, derive orders; pure: no clock, socket, file, thread, randomness
    model           frozen values
    invariants      conditions that hold for every state; tests check them after every step

The way of a command: request -> `state_machines.metadata.validate` -> entry -> journal, fsync ->
`state_machines.metadata.apply` -> `state_machines.node_orders.between(before, after)` -> native node ->
outcomes -> answer.
"""
