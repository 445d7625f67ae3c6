"""The command line: a file per verb."""
