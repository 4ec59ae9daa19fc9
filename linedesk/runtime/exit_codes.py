"""The exit codes of every linedesk command: BSD's sysexits.h where it has a number for it."""

from enum import IntEnum


class Exit(IntEnum):
    """The meaning of each exit code.

    systemd units can list `CONFIG` in RestartPreventExitStatus: a restart does not fix a setting.
    """

    OK = 0
    FAILED = 1
    SCHEMA = 65
    """Another version has written the documents; this one would misread them and exits."""
    UNAVAILABLE = 69
    SOFTWARE = 70
    STUCK = 75
    """Handlers are stuck: a handler did not return within the drain, all threads have handlers that
    never return, or a worker's program was replaced or did not start. Their events are handled
    again, or become dead letters after HANDLER_TRIES.
    """
    REPLACED = 76
    """Another dispatcher has taken over; this one stopped at once."""
    CONFIG = 78
    INTERRUPTED = 130
    """Ctrl-C ended a command. Processes that stop cleanly at Ctrl-C exit with OK."""
    KILLED = 137
