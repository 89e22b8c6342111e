"""What goes wrong in a simulated run: drawn from the seed, then carried out."""
