"""Parts of `ringfence.compact`.

manifest    the valid files of a directory, and its repair after a crash
sort        sort the rows of a file
file_types  convert rows to the types of a file format
"""
