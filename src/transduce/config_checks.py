"""What a configuration is checked with, and the errors that the command line knows."""


class RequestError(Exception):
    """What was asked for cannot be done as asked; the message names what and says what would be.

    The command line prints the message as one line and exits with status 2.
    """


class Diverged(Exception):
    """The loss or the gradient is no longer a finite number; the message says at which update.

    The command line prints the message as one line and exits with status 1.
    """


class SaveFailed(Exception):
    """A checkpoint could not be written; the message says why.

    The command line prints the message as one line and exits with status 1.
    """


class WriteFailed(Exception):
    """Output could not be written to its end; the message says where, why and how much is whole.

    The command line prints the message as one line and exits with status 1.
    """


class VariantsFailed(Exception):
    """Some variants of a sweep failed, the others not; the message names them.

    The command line prints the message as one line and exits with status 1.
    """


class Interrupted(Exception):
    """A run was asked to stop, and all that it did is saved; the message says how far it came.

    The command line prints the message as one line and exits with status 75.
    """


def require(holds: bool, message: str) -> None:
    """Raises `RequestError` with the message unless it `holds`."""
    if not holds:
        raise RequestError(message)


def positive(section: str, owner: object, names: str) -> None:
    """The fields `names` of `owner`, which is `section` of the configuration, are above 0."""
    for name in names.split():
        value = getattr(owner, name)
        require(value > 0, f"{section}.{name} must be positive, not {value}")


def not_negative(section: str, owner: object, names: str) -> None:
    """The fields are 0 or above."""
    for name in names.split():
        value = getattr(owner, name)
        require(value >= 0, f"{section}.{name} must not be negative, not {value}")


def fraction(section: str, owner: object, names: str) -> None:
    """The fields are at least 0 and below 1."""
    for name in names.split():
        value = getattr(owner, name)
        require(0 <= value < 1, f"{section}.{name} must be at least 0 and below 1, not {value}")
