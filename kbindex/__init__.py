"""kbindex: a search index of a knowledge bundle, inside the git repository that holds it.

Importing this package loads nothing else: the command line has to start in a blink.
"""

__version__ = "0.1.0"
