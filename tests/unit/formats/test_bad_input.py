"""Bad input of any kind gets problems in bounded time and memory, never an exception."""

import time
import tracemalloc

import pytest

from muster_core.models import Problem, Severity
from muster_formats import parse

HEAD = "apiVersion: muster.dev/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  roles:\n    worker:\n      image: x\n"
ALIAS_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGE_BOMB = (
    "a: &a {"
    + ", ".join(f"k{i}: 1" for i in range(500))
    + "}\n"
    + "".join(f"b{i}: {{<<: *a}}\n" for i in range(500))
)
TABLE: dict[str, tuple[str | bytes, str]] = {
    "an empty document": ("", "EmptyDocument"),
    "only comments": ("# a\n---\n# b\n", "EmptyDocument"),
    "only a separator": ("--- \n", "EmptyDocument"),
    "ten megabytes": ("a: b\n" * 2_000_000, "TooLarge"),
    "ten megabytes of bytes": (b"a: b\n" * 2_000_000, "TooLarge"),
    "more bytes than characters": ("a: " + "ä" * 300_000, "TooLarge"),
    "an alias bomb": (ALIAS_BOMB, "TooLarge"),
    "one long text many times": ("a: &a " + "x" * 200_000 + "\nb: [" + "*a, " * 20_000 + "]", "TooLarge"),
    "a merge bomb": (MERGE_BOMB, "TooLarge"),
    "many values": ("[" + "1, " * 100_000 + "]", "TooLarge"),
    "many parts": ("--- a\n" * 1000, "TooLarge"),
    "a long key": ("? " + "k" * 5000 + "\n: 1", "TooLarge"),
    "deep brackets": ("[" * 100_000, "TooDeep"),
    "deep braces": ("{a: " * 100_000, "TooDeep"),
    "deep hyphens": ("- " * 200_000, "TooDeep"),
    "depth by aliases": ("".join(f"a{i}: &a{i} [{f'*a{i - 1}' if i else ''}]\n" for i in range(60)), "TooDeep"),
    "an alias of itself": ("a: &a [*a]", "BadAlias"),
    "an alias without an anchor": ("a: *b", "BadAlias"),
    "not a number": (HEAD + "      replicas: .nan", "BadNumber"),
    "infinity": (HEAD + "      replicas: -.inf", "BadNumber"),
    "a float too large": (HEAD + "      replicas: 1e999", "BadNumber"),
    "many digits": (HEAD + f"      replicas: {'9' * 100_000}", "BadNumber"),
    "a quantity of 2^63": (HEAD + "      resources: {memory: 9223372036854775808}", "BadQuantity"),
    "a count of 2^63": (HEAD + "      replicas: 9223372036854775808", "OutOfRange"),
    "a negative quantity": (HEAD + "      resources: {cpu: -1}", "BadQuantity"),
    "a duplicate key": ("a: 1\na: 2", "DuplicateKey"),
    "a duplicate key in braces": ("{a: 1, 'a': 2}", "DuplicateKey"),
    "latin-1": ("name: Zoë".encode("latin-1"), "NotUtf8"),
    "utf-16": ("a: 1".encode("utf-16"), "NotUtf8"),
    "half a surrogate pair": ("a: \ud800", "NotUtf8"),
    "a bell": ("a: \x07", "ControlCharacter"),
    "a nul": ("a: \x00", "ControlCharacter"),
    "an escaped nul": ('a: "\\0"', "ControlCharacter"),
    "a control character of latin-1": ("a: \x9b", "ControlCharacter"),
    "a noncharacter": ("a: \ufffe", "ControlCharacter"),
    "a tab for indentation": ("a:\n\tb: 1", "NotYaml"),
    "an open bracket": ("a: [1", "NotYaml"),
    "an open quote": ("a: 'b", "NotYaml"),
    "two colons": ("a: b: c", "NotYaml"),
    "random bytes": (bytes(range(128, 256)), "NotUtf8"),
    "a python object": ("!!python/object/apply:os.system ['true']", "BadTag"),
    "a binary": ("a: !!binary aGk=", "BadTag"),
    "a set": ("!!set {a, b}", "BadTag"),
    "a list as key": ("? [a]\n: b", "BadKey"),
    "a mapping as key": ("{{a: b}: c}", "BadKey"),
    "a text": ("just words", "WrongType"),
    "a number": ("42", "WrongType"),
    "a list": ("[1, 2]", "WrongType"),
    "an empty mapping": ("{}", "UnsupportedKind"),
    "control characters in a name": (HEAD.replace("name: a", 'name: "a\\e[31m"'), "BadName"),
    "a document that only Python can hold": ("a: 1\n" + "b: 2024-13-45\n", "UnsupportedKind"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "code"), TABLE.values(), ids=TABLE)
def test_bad_input_is_rejected_within_a_second(document: str | bytes, code: str) -> None:
    started = time.process_time()
    parsed = parse(document)
    assert time.process_time() - started < 1
    assert parsed.jobs == ()
    assert code in {problem.code for problem in parsed.problems}
    assert all(is_printable(problem) for problem in parsed.problems)


def is_printable(problem: Problem) -> bool:
    texts = (problem.message, problem.path, problem.found, problem.allowed, problem.fix)
    return all(text.isprintable() for text in texts)


HEAVY = {
    "roles": HEAD + "".join(f"    r{i}: {{image: x}}\n" for i in range(12_000)),
    "wrong roles": HEAD + "".join(f"    r{i}: {{imagee: x}}\n" for i in range(9_000)),
    "overrides": HEAD.replace("image: x", "image: " + "x" * 200_000)
    + "      max: 20000\n      overrides:\n"
    + "".join(f"        - index: {i}\n" for i in range(9_000)),
    "variables": HEAD + "      env: {" + ", ".join(f"A{i}=: 1" for i in range(15_000)) + "}\n",
    "long unknown keys": HEAD + "".join(f"      {'k' * 1000}{i}: 1\n" for i in range(400)),
}


@pytest.mark.parametrize("document", HEAVY.values(), ids=HEAVY)
def test_a_heavy_document_is_read_in_bounded_time_and_memory(document: str) -> None:
    started = time.process_time()
    parsed = parse(document)
    spent = time.process_time() - started
    assert parsed.jobs == ()
    assert len(parsed.problems) <= 101
    assert spent < 2


def test_an_alias_bomb_costs_no_memory() -> None:
    tracemalloc.start()
    parse(ALIAS_BOMB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


def test_after_a_hundred_problems_one_reports_that_there_are_more() -> None:
    parsed = parse("apiVersion: muster.dev/v1\nkind: Job\n" + "".join(f"k{i}: 1\n" for i in range(300)))
    assert len(parsed.problems) == 101
    assert parsed.problems[-1].code == "TooManyProblems"


def test_problems_have_source_locations() -> None:
    text = HEAD + "      replicas: two\n      imagee: x\n"
    reported = {(p.code, p.path, p.line, p.column) for p in parse(text).problems}
    assert reported == {
        ("WrongType", "spec.roles.worker.replicas", 8, 17),
        ("UnknownField", "spec.roles.worker.imagee", 9, 7),
    }


def test_a_bad_byte_is_reported_at_its_location() -> None:
    problem = parse("a: 1\nname: Zoë\n".encode("latin-1")).problems[0]
    assert (problem.line, problem.column, problem.severity) == (2, 9, Severity.ERROR)


def test_a_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    assert parse(b"\xef\xbb\xbf" + HEAD.replace("\n", "\r\n").encode()).problems == ()


def test_json_may_write_one_character_as_two_escapes() -> None:
    document = (
        '{"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": "a", "annotations": {"note": "\\ud83d\\ude00 \\\\ud83d"}},'
        ' "spec": {"roles": {"worker": {"command": ["true"]}}}}'
    )
    parsed = parse(document)
    assert parsed.problems == ()
    assert parsed.jobs[0].annotations == {"note": "\U0001f600 \\ud83d"}
