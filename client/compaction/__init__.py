"""Parts of `ringfence.compact`: the manifest of a directory, sorting, and types of files."""
