"""The committed rows: their files are read here, by readers that accept only what we write.

Nothing of a committed file reaches LanceDB or Arrow: both follow names that stand in files, and
neither bounds what it allocates. They only write.
"""
