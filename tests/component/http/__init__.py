"""Admin HTTP: the program's answers to every request, sound and unsound."""
