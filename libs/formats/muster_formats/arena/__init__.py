"""Arena command lines as documents.

``document``: the reader, imported when a command line is read. ``flags``: the flags of each sub-command. ``flag_types``: their types.
``command_line``: words into flags. ``replicas``: the template of a replica. ``jobs``: sub-commands into jobs.
"""

PROGRAMS = ("arena", "muster")
"""Program names that start a command-line document."""
