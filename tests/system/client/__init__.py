"""The client library against one running node."""
