"""`python -m linedesk` is the command `linedesk`."""

from linedesk.cli import main

main()
