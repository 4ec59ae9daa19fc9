"""`python -m linedesk` is the command `linedesk`."""

import sys

if not sys.flags.safe_path:
    # As with -P: a bot author's console.py in the working directory is not ours.
    del sys.path[0]

from linedesk.cli.main import main

main()
