"""The exit codes of every linedesk command: BSD's sysexits.h where it has a number for it."""

from enum import IntEnum


class Exit(IntEnum):
    """What a process says by its exit code.

    systemd units can name `CONFIG` in RestartPreventExitStatus: a restart does not mend a setting.
    """

    OK = 0
    FAILED = 1
    NEWER = 65
    """A newer release has written the documents; this one would misread them and does nothing."""
    UNAVAILABLE = 69
    SOFTWARE = 70
    STUCK = 75
    """A bot's handler did not return within the drain, or as many handlers as there are threads
    never returned, or a worker's program was exchanged or did not start; their events will be
    handled again, or given up after so many tries."""
    REPLACED = 76
    """Another dispatcher has taken over; this one did nothing more."""
    CONFIG = 78
    INTERRUPTED = 130
    """Ctrl-C ended a command. Processes that stop in order at Ctrl-C end with OK."""
    KILLED = 137
