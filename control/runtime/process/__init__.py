"""Parts of every process: settings, addresses, logs, health, errors.

settings      defaults, a TOML file, RINGFENCE_* variables, flags
sizes         parse 512MiB
addresses     addresses to bind and to advertise
descriptors   limits of open files and connections
logs          structured logging on stderr
health        track the reasons for which the node is degraded
wait_log      log long waits: once immediately, then every half minute
start_gate    refuse requests while the node starts
tasks         the error that ended a background task
errors        refusals in answers to clients
statuses      map refusals to HTTP statuses
"""
