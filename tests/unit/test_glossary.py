"""The glossary explains the words of which the code makes its classes' names, and no others."""

import ast
import re
from pathlib import Path

import pytest

import mpicoll

ROOT = Path(mpicoll.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PAGE = (ROOT.parent / "docs" / "glossary.md").read_text(encoding="utf-8")

#: words of classes' names that need no explanation here, and why
PLAIN = {
    "arrays": "NumPy's and CuPy's word",
    "communicator": "MPI's word",
    "error": "Python's word; each error explains itself",
    "floats": "Python's word",
    "mpicoll": "this library",
    "nccl": "NVIDIA's library",
    "parser": "argparse's word",
    "settings": "all of them",
    "table": "a plain word",
}
#: classes whose names are one word with a meaning in their own file only
PRIVATE = {
    "Begun": "the protocol of calls on their way",
    "CUDAArray": "a protocol for type checkers",
    "CuPyArray": "a protocol for type checkers",
    "DLPackArray": "a protocol for type checkers",
    "Maker": "a protocol for type checkers",
    "PythonBuffer": "a protocol for type checkers",
    "Starter": "a protocol for type checkers",
    "Tensor": "a protocol for type checkers",
    "Asked": "the protocol of what a desk tells of",
    "Counted": "the protocol of what a recorder asks",
    "Many": "an option with a list",
    "MismatchError": "an error",
    "One": "an option with one value",
    "RefusedError": "an error",
    "ScheduleError": "an error",
    "ShortageError": "an error",
    "StalledError": "an error",
    "TransportError": "an error",
    "UnreadableError": "an error",
    "UnsupportedError": "an error",
}


def rows():
    """The glossary's rows: (terms, meaning, file)."""
    lines = re.findall(r"^\| (\*\*.+?\*\*) \| (.+) \| `(.+)` \|$", PAGE, re.MULTILINE)
    return [(re.findall(r"\*\*(.+?)\*\*", terms), meaning, file) for terms, meaning, file in lines]


TERMS = [term for terms, _, _ in rows() for term in terms]


def split(name):
    """The words of a name: ["call", "cache"] of CallCache, call_cache and _CallCache."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def classes():
    """The names of all classes of mpicoll, public and private."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in FILES)
    return sorted({node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)})


def used():
    """All words in the names of mpicoll's files, and in their text."""
    texts = [*FILES, *ROOT.rglob("*.cu")]
    return {word for file in texts for word in [*split(file.stem), *split(file.read_text(encoding="utf-8"))]}


def is_known(word):
    return any(form in TERMS or form in PLAIN for form in (word, word.removesuffix("s")))


@pytest.mark.parametrize("name", [name for name in classes() if name not in PRIVATE])
def test_the_words_of_each_class_name_are_explained(name):
    words = split(name)
    assert " ".join(words) in TERMS or all(map(is_known, words)), f"docs/glossary.md lacks {' '.join(words)!r}"


def test_exceptions_are_classes_and_words_of_the_code():
    assert PRIVATE.keys() <= set(classes())
    assert PLAIN.keys() <= {word for name in classes() for word in split(name)}
    assert not PLAIN.keys() & set(TERMS)


def test_a_class_whose_word_is_nowhere_is_found():
    assert not is_known("gadget")
    assert split("_LocalWork") == ["local", "work"]
    assert split("HTTPDesk") == ["http", "desk"]


def test_every_term_is_a_word_of_the_code():
    words = used()
    unused = [term for term in TERMS if not all({part, f"{part}s"} & words for part in term.split())]
    assert not unused


def test_terms_stand_once_and_in_alphabetical_order():
    firsts = [terms[0] for terms, _, _ in rows()]
    assert firsts == sorted(firsts)
    assert len(TERMS) == len(set(TERMS))
    assert PAGE.count("\n| **") == len(rows()), "a row that cannot be read"


def test_files_of_terms_exist_and_use_them():
    for terms, _, file in rows():
        text = (ROOT / file).read_text(encoding="utf-8")
        found = {*split(text), *split(Path(file).stem)}
        for word in terms[0].split():
            assert {word, f"{word}s", word.removesuffix("s")} & found, (terms, file)
