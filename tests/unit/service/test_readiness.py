from muster_service.readiness import Readiness


def test_a_service_is_ready_when_all_that_it_named_is():
    readiness = Readiness()
    readiness.set("bus", False)
    readiness.set("feed", False)

    readiness.set("bus", True)
    assert (readiness.ready, readiness.waiting_for) == (False, ["feed"])
    readiness.set("feed", True)
    assert (readiness.ready, readiness.waiting_for) == (True, [])


def test_listeners_are_called_when_overall_readiness_changes():
    readiness = Readiness()
    received: list[bool] = []
    readiness.listen(received.append)

    for name, holds in [
        ("bus", False),
        ("feed", False),
        ("bus", True),
        ("feed", True),
        ("feed", True),
        ("bus", False),
    ]:
        readiness.set(name, holds)

    assert received == [False, True, False]
