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


def test_a_missing_resource_is_named_with_its_reason_and_does_not_keep_calls_from_being_answered():
    readiness = Readiness()
    answers: list[bool] = []
    readiness.listen_to_answers(answers.append)

    readiness.set("storage", False, reason="the disk is full", needed_to_answer=False)
    assert (readiness.ready, readiness.answers) == (False, True)
    assert readiness.waiting_for == ["storage (the disk is full)"]
    readiness.set("records", False)
    readiness.set("storage", True, needed_to_answer=False)

    assert (readiness.ready, readiness.waiting_for, answers) == (False, ["records"], [False])


def test_a_condition_with_a_check_is_asked_each_time_and_announced_when_it_is_set():
    readiness = Readiness()
    received: list[bool] = []
    readiness.listen(received.append)
    current = True
    readiness.check("records", lambda: current)
    readiness.set("records", True)
    assert readiness.ready

    current = False
    assert (readiness.ready, readiness.answers, readiness.waiting_for) == (False, False, ["records"])
    assert received == []
    readiness.set("records", True)
    assert received == [False]
    current = True
    readiness.set("records", True)
    assert received == [False, True]
