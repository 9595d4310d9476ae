"""The demo and the paper's studies: each module offers `configure(parser)` and `run(args)` to the command line."""
