"""`python -m linedesk` is the command `linedesk`, which begins here as well."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # As with -P: a bot author's console.py in the working directory is not ours.
    del sys.path[0]

from linedesk.commands.interrupts import take_ctrl_c


def main() -> None:
    """The entry point of `linedesk`."""
    take_ctrl_c()
    from linedesk.launch.main import linedesk

    linedesk()


if __name__ == "__main__":
    main()
