"""Several modules of the product in one process, their surroundings faked."""
