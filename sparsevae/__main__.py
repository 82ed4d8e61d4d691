"""`python -m sparsevae` is the command line."""

import sys

from sparsevae.cli import main

if __name__ == "__main__":
    sys.exit(main())
