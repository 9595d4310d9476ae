"""`python -m patrac_native.cli` is the command `patrac`, for environments whose scripts are not on the path."""

import sys

from patrac_native.cli.main import main

# Worker processes import this module under another name.
if __name__ == "__main__":
    sys.exit(main())
