"""The command line `patrac`, one module for each command. Public: main."""
