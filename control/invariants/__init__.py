"""What must hold of every state. Tests call these after each step; a broken one ends the process."""
