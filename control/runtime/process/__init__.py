"""What a process has whatever it does.

settings      defaults, a TOML file, RINGFENCE_* variables, flags
addresses     addresses to bind and to advertise
descriptors   limits of open files
logs          structured logging on stderr
health        reasons why the node is not ready
wait_log      log long waits: once immediately, then every half minute
errors        refusals that clients are answered with
statuses      HTTP statuses of refusals
"""
