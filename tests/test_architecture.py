"""The rules of the house that no other tool checks: sizes, names, roots, and what may be imported.

Import contracts between packages stand in pyproject.toml; here is what they cannot say.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_ett.__main__ import EXTRA
from fleet_ett.settings import OPTIONS

ROOT = Path(__file__).parent.parent
SERVICE, COLLECTORS = ROOT / "service" / "fleet_ett", ROOT / "collectors" / "ett_collector"
SOURCES = sorted([*SERVICE.rglob("*.py"), *COLLECTORS.rglob("*.py"), *(ROOT / "migrations").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = 400
NO_NOUNS = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}
# What the core may use of the standard library: arithmetic, containers, types.
PURE = {
    "__future__", "base64", "bisect", "collections", "copy", "dataclasses", "enum", "fractions", "functools", "hashlib",
    "heapq", "itertools", "json", "math", "operator", "re", "types", "typing", "zlib",
}  # fmt: skip
# The one framework that a file of ett_collector/integrations/ is for.
FRAMEWORKS = {
    "huggingface": {"transformers"},
    "lightning": {"lightning", "pytorch_lightning"},
    "megatron": {"megatron", "torch"},
    "torchelastic": {"torch"},
    "torchtitan": {"torchtitan"},
}
BUILT_IN_IO = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


def test_roots_are_fixed() -> None:
    """A new folder at the root, or a third package, is a decision and not an accident."""
    if shutil.which("git") and (ROOT / ".git").exists():  # not an unpacked archive
        tracked = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        roots = {line.partition("/")[0] for line in tracked.splitlines()}
        known = {
            ".ci", ".github", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "collectors", "deploy",
            "migrations", "pyproject.toml", "service", "tests",
        }  # fmt: skip
        assert set() == roots - known
    assert ["fleet_ett"] == [
        path.name for path in (ROOT / "service").iterdir() if (path / "__init__.py").exists()
    ]
    assert ["ett_collector"] == [
        path.name for path in (ROOT / "collectors").iterdir() if (path / "__init__.py").exists()
    ]
    for package in (SERVICE, COLLECTORS):
        assert (package / "py.typed").exists()


def test_files_are_short() -> None:
    """Longer than this is more than one noun."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (*SOURCES, *TESTS)}
    assert {} == {name: length for name, length in lengths.items() if length > MAX_LINES}


def test_names_say_something() -> None:
    """No module or folder is called after nothing."""
    parts = {path: {*path.relative_to(ROOT).with_suffix("").parts} & NO_NOUNS for path in (*SOURCES, *TESTS)}
    assert [] == [str(path.relative_to(ROOT)) for path, found in parts.items() if found]


def test_source_is_ascii() -> None:
    """Source reads the same in every terminal; other signs are escaped, or stand in data."""
    assert [] == [str(path.relative_to(ROOT)) for path in SOURCES if not path.read_bytes().isascii()]


def test_modules_say_what_they_are_for() -> None:
    """Every module with code in it has a docstring and postponed annotations."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        if tree.body:
            assert ast.get_docstring(tree), path
        if any(not isinstance(node, ast.Expr) for node in tree.body):
            assert "__future__" in imports(tree), path


@pytest.mark.parametrize("path", sorted((SERVICE / "core").rglob("*.py")), ids=lambda path: path.stem)
def test_core_is_pure(path: Path) -> None:
    """The core computes: no files, sockets, clock or logging, and of other packages numpy and the wire alone."""
    tree = ast.parse(path.read_text())
    allowed = PURE | {"numpy"}
    strangers = {
        name
        for name in imports(tree)
        if name.partition(".")[0] not in allowed
        and not name.startswith(("fleet_ett.core", "ett_collector.wire"))
    }
    assert set() == strangers
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert set() == called & BUILT_IN_IO


@pytest.mark.parametrize("path", sorted(COLLECTORS.rglob("*.py")), ids=lambda path: path.stem)
def test_collectors_need_nothing(path: Path) -> None:
    """A training image gets the standard library and this package, nothing of anybody else's."""
    names = {name.partition(".")[0] for name in imports(ast.parse(path.read_text()))}
    frameworks = FRAMEWORKS.get(path.stem, set()) if path.parent.name == "integrations" else set()
    assert set() == names - {"ett_collector"} - sys.stdlib_module_names - frameworks


def test_what_the_service_imports_is_told_to_be_in_its_extra() -> None:
    """Where it is missing the command says what to install; a name left out would be a traceback."""
    names = {
        name.partition(".")[0]
        for path in SERVICE.rglob("*.py")
        for name in imports(ast.parse(path.read_text()))
    }
    assert set() == names - {"fleet_ett", "ett_collector"} - sys.stdlib_module_names - set(EXTRA)


def test_importing_the_recorder_starts_nothing() -> None:
    """`import ett_collector` loads no third-party module and starts no thread."""
    script = (
        "import sys, threading\n"
        "before = set(sys.modules)\n"
        "import ett_collector\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(loaded - sys.stdlib_module_names, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "{'ett_collector'} 1\n" == done.stdout


def test_no_import_is_relative() -> None:
    """A name is searched for by its full path."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def test_readme_has_every_setting() -> None:
    """A variable that the code reads has a row in README's tables, and README names no other."""
    inner = {
        "ETT_ATTEMPT_LAUNCHED_NS",
        "ETT_ATTEMPT_LAUNCHED_MONO",
        "ETT_AUTO_PID",
        "ETT_BY",
    }  # told by ett-run to its child, by a rank to its own; the wheel of another process
    names = re.compile(r"\bETT_[A-Z_]+\b")
    read = set(OPTIONS)
    for path in COLLECTORS.rglob("*.py"):
        read |= {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and names.fullmatch(node.value)
        }
    facts = {
        "ETT_CLUSTER",
        "ETT_TEAM",
        "ETT_MODEL",
        "ETT_FRAMEWORK",
        "ETT_JOB_NAME",
    }  # put together from a list
    rows = {name for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `ETT_")
            for name in names.findall(line.split("|")[1])}  # fmt: skip
    assert (read | facts) - inner == rows


def imports(tree: ast.Module) -> set[str]:
    """The full names of the modules that a file imports, wherever in it; `from a import b` is `a`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found
