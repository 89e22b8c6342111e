"""The control plane: metadata, settings, the command line. Pure Python."""
