"""The flags."""

import pytest

from examples.digits.trainer.options import parse_options


def test_the_defaults_are_those_of_the_example() -> None:
    options = parse_options([])
    assert (options.global_steps, options.target_accuracy, options.step_delay_ms) == (20_000, 0.95, 0.0)


def test_flags_are_written_as_in_tensorflow_samples() -> None:
    options = parse_options(["--global_steps=100", "--learning_rate", "0.1"])
    assert (options.global_steps, options.learning_rate) == (100, 0.1)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--global_steps=0", "'0' is not a whole number of at least 1"),
        ("--batch_size=2.5", "'2.5' is not a whole number"),
        ("--learning_rate=0", "'0' is not a finite number above 0"),
        ("--learning_rate=nan", "'nan' is not a finite number"),
        ("--target_accuracy=95", "'95' is not a finite number of at least 0 and at most 1"),
        ("--step_delay_ms=-1", "'-1' is not a finite number of at least 0"),
        ("--timeout_s=soon", "'soon' is not a number"),
        ("--global_step=5", "unrecognized arguments"),
    ],
)
def test_a_wrong_flag_is_refused(flag: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_options([flag])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err
