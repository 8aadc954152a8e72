"""Bus errors, by what the caller may conclude.

The important distinction is between *refused* (nothing happened) and *unavailable* (the outcome is unknown).
"""


class BusError(Exception):
    """Base of all bus errors."""


class BusUnavailable(BusError):
    """No answer came: the outcome is unknown, and the request may still have been executed."""


class BusMissing(BusUnavailable):
    """The stream or consumer does not exist, not yet or not any more: nothing happened, and it may be created later."""


class WriteInProcess(BusUnavailable):
    """The leader of a cluster is still storing a message with this id, or one with a condition on the same subject.

    Nothing of this request was stored, but an earlier attempt of it may be: repeat it soon.
    """


class BusRejected(BusError):
    """The broker answered with an error: nothing happened.

    ``code`` is the status as in HTTP, ``err_code`` the broker's number, ``description`` its text.
    """

    def __init__(self, description: str, *, code: int = 400, err_code: int = 0) -> None:
        super().__init__(f"{description} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class BusNotFound(BusRejected):
    """The message does not exist, or no stream has such a subject."""


class WrongSequence(BusRejected):
    """A compare-and-set lost: the subject's last sequence is not the expected one."""


class StreamFull(BusRejected):
    """The stream is at its limit, or the broker out of storage; old messages stay, new ones are refused."""


class Duplicate(BusRejected):
    """A message id of this batch, or of this message, was used before for something else."""


class Fenced(BusError):
    """The epoch moved on: another leader was elected, and nothing of this batch was stored."""


class BatchTooLarge(BusError):
    """An atomic batch holds at most 1,000 messages."""


class Poison(Exception):
    """Raised by a handler for a message that can never be handled: it is dead-lettered at once.

    ``reason`` is stored with the dead letter.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
