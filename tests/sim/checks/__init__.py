"""What must hold of a simulated cluster, and who looks at it."""
