from muster_local.processes import Backoff


def test_the_wait_doubles_up_to_the_longest() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_program_that_stayed_up_is_forgiven() -> None:
    backoff = Backoff()
    for _ in range(4):
        backoff.after(1.0)
    assert backoff.after(30.0) == 0.2
    assert backoff.after(29.9) == 0.4
