"""The errors with which a command of linedesk ends; their texts are for the operator."""

from collections.abc import Sequence


class LinedeskError(Exception):
    """Base of these errors; the text is for the operator."""


class SettingsError(LinedeskError):
    """Wrong or missing settings; `problems` has a line for each and never the value of a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CannotServe(LinedeskError):
    """The port of the simulator or of the console cannot be had."""


class DataInUse(LinedeskError):
    """Another `linedesk up` runs the embedded mongod on the same data."""


class BackupError(LinedeskError):
    """An export that cannot be written, or a file that is none, or not whole."""


class NotImported(LinedeskError):
    """The database cannot be given an export as it stands; the text says what to do."""


class DemoFailed(LinedeskError):
    """The demo could not go on; the text says at which step, with the end of the log concerned."""


class DemoInterrupted(LinedeskError):
    """A person or the system ended the demo by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number
