"""The command line against one running node."""
