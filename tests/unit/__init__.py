"""One module a file, at the path of the module; what surrounds it is small or faked."""
