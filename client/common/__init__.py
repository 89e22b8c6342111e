"""Values and helpers that all rooms of the client share; imports no other room."""
