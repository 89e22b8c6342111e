"""What must hold of every state. Tests call these after each step; a broken one ends the process.

`metadata`: members, topics, producers, scopes. `changes`: open changes of partitions and what they leave.
"""
