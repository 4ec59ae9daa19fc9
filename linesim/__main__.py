"""`python -m linesim` is the command `linesim`."""

from linesim.http.command import main

if __name__ == "__main__":
    main()
