"""The control plane of a node or of a small cluster, over fake native nodes."""
