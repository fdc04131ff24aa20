"""What holds of the tree as a whole."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MOST_LINES = 60
"""Of a function's body."""


def name_of(path: Path) -> str:
    """``glit.pipeline.run`` of its file; a folder has the name of its ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((ROOT / "glit").rglob("*.py"))}


def run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those for type checkers alone."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.orelse if for_types else [node]:
            yield from run(each)


def imported(node: ast.AST) -> list[str]:
    """Full names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module, "relative imports are not used here"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in MODULES else node.module for name in inner]
    return []


def folder_of(module: str) -> str:
    """The folder of glit, or the file beside the folders: ``glit.pipeline``, ``glit.images``."""
    return ".".join(module.split(".")[:2])


def folder_imports(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Which folders each folder imports, in functions too."""
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        own = folder_of(module)
        for node in run(ast.parse(path.read_text())):
            others = {folder_of(name) for name in imported(node) if name.split(".")[0] == "glit"}
            found.setdefault(own, set()).update(others - {own})
    return found


def test_no_folder_of_tests_is_left_out(pytestconfig):
    """pytest passes over folders by name; one of its defaults is ``build``."""
    left_out = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in TESTS.rglob("test_*.py")} - {TESTS}
    assert TESTS / "pipeline" in folders
    for folder in folders:
        for name in folder.relative_to(TESTS).parts:
            assert not any(fnmatch.fnmatch(name, pattern) for pattern in left_out), folder


def test_imports_between_folders_never_go_round():
    imports = folder_imports(MODULES)
    assert "glit.dataset" in imports["glit.pipeline"] and "glit.errors" in imports["glit.images"]
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the folders


def test_a_circle_of_imports_is_found(tmp_path):
    """Through a function too, but not for type checkers."""
    texts = {
        "glit.a.x": "def f():\n    from glit.b import thing",
        "glit.b.y": "try:\n    import glit.a.x\nexcept ImportError:\n    pass",
        "glit.c": "if TYPE_CHECKING:\n    import glit.a\nelse:\n    import glit.b",
    }
    files = {}
    for number, (module, text) in enumerate(texts.items()):
        files[module] = tmp_path / f"{number}.py"
        files[module].write_text(text)
    imports = folder_imports(files)
    assert imports == {"glit.a": {"glit.b"}, "glit.b": {"glit.a"}, "glit.c": {"glit.b"}}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports).prepare()


def test_only_the_executors_import_ray():
    """Anywhere in a module, functions included."""
    importing = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported(node)
        if name.split(".")[0] == "ray"
    }
    names = ("on_ray", "ray_actor", "ray_pool", "ray_suspect", "ray_train")
    assert importing == {f"glit.executors.{name}" for name in names}


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code in a function: without its signature, docstring and long texts."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    lines = set(range(body[0].lineno, (function.end_lineno or 0) + 1)) if body else set()
    for node in ast.walk(function):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text or isinstance(node, ast.JoinedStr):
            lines -= set(range(node.lineno + 1, node.end_lineno or node.lineno))
    return len(lines)


def test_no_function_is_long():
    lengths = {
        f"{module}.{node.name}": body_lines(node)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lengths) > 2000
    assert {name for name, length in lengths.items() if length > MOST_LINES} == set()


def test_the_command_line_builds_through_the_api():
    """What it imports of the pipeline is for type checkers alone."""
    found = set()
    for module, path in MODULES.items():
        if folder_of(module) != "glit.cli":
            continue
        tree = ast.parse(path.read_text())
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        nodes = [node for node in ast.walk(tree) if node not in for_types]
        found |= {folder_of(name) for node in nodes for name in imported(node)}
    assert "glit.api" in found and not found & {"glit.pipeline", "glit.work"}


def test_a_request_ends_at_the_door():
    """Only the module that defines it takes one; others make it, and hand it over there."""
    taking = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.arg) and node.annotation is not None
        if "BuildRequest" in ast.unparse(node.annotation)
    }
    assert taking == {"glit.pipeline.build"}
