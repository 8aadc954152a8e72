"""The flags of the program. Every role accepts all of them, because ``TF_CONFIG`` and not the command selects the role."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options; times in the unit of their name."""

    global_steps: int
    batch_size: int
    learning_rate: float
    target_accuracy: float
    step_delay_ms: float
    report_every: int
    timeout_s: float
    linger_s: float


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the flags.

    Raises:
        SystemExit: with code 2 and one line on standard error for a wrong flag, as ``argparse`` does.
    """
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train a digit classifier with an asynchronous parameter server; the role is read from TF_CONFIG.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--global_steps", type=_whole, default=20_000, help="gradients to apply, of all workers together")
    add("--batch_size", type=_whole, default=32, help="samples of one gradient")
    add("--learning_rate", type=_number(above=0), default=0.05, help="step size of the parameter server")
    add(
        "--target_accuracy",
        type=_number(at_most=1),
        default=0.95,
        help="test accuracy that counts as success",
    )
    add(
        "--step_delay_ms",
        type=_number(),
        default=0.0,
        help="pause of a worker after each step, so that a demonstration lasts",
    )
    add("--report_every", type=_whole, default=500, help="steps between two progress lines")
    add(
        "--timeout_s",
        type=_number(above=0),
        default=120.0,
        help="how long a worker waits for the parameter server",
    )
    add(
        "--linger_s",
        type=_number(),
        default=10.0,
        help="how long the parameter server stays for late workers at the end",
    )
    return Options(**vars(parser.parse_args(arguments)))


def _whole(text: str) -> int:
    value = int(text) if text.strip().isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def _number(*, above: float | None = None, at_most: float = math.inf) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        too_small = value <= above if above is not None else value < 0
        if not math.isfinite(value) or too_small or value > at_most:
            floor = f"above {above:g}" if above is not None else "of at least 0"
            ceiling = f" and at most {at_most:g}" if math.isfinite(at_most) else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a finite number {floor}{ceiling}")
        return value

    return parse
