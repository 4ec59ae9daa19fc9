"""The errors with which a command of linedesk ends. Their texts are for the operator."""

from collections.abc import Sequence


class LinedeskError(Exception):
    """Base of these errors; the text is for the operator."""


class SettingsError(LinedeskError):
    """Wrong or missing settings; `problems` has a line for each and never the value of a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CannotServe(LinedeskError):
    """The port of the simulator or of the console is not available."""


class DataInUse(LinedeskError):
    """Another `linedesk up` runs the embedded mongod with the same data."""


class BackupError(LinedeskError):
    """An export that cannot be written, or a file that is not a complete export."""


class NotImported(LinedeskError):
    """The database is not ready for an import; the text says what to do."""


class DemoFailed(LinedeskError):
    """The demo failed; the text names the step and has the end of its log."""


class DemoInterrupted(LinedeskError):
    """A signal ended the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number
