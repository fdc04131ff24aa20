"""What holds of the tree as a whole."""

from __future__ import annotations

import ast
import fnmatch
import functools
import graphlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from glit.stages import all_steps

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MOST_LINES = 60
"""Of a function's body."""


def name_of(path: Path) -> str:
    """``glit.pipeline.run`` of its file; a folder has the name of its ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((ROOT / "glit").rglob("*.py"))}


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module, read once for all tests."""
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of that tree."""
    return [*ast.walk(parsed(path))]


def run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those for type checkers alone."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        test = node.test if isinstance(node, ast.If) else None
        for_types = isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
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


NAMED = re.compile(r"(glit(?:\.\w+)+)\.?(?::\w+)?")
"""A module as a string names it: ``glit.x``, ``glit.x:Name``, and ``glit.x.`` of an f-string."""


def named(node: ast.AST) -> list[str]:
    """The module that a string names, for ``importlib.import_module`` and ``python -m``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = NAMED.fullmatch(node.value)
        return [found[1]] if found else []
    return []


@functools.cache
def names_of(path: Path) -> tuple[set[str], set[str]]:
    """What a module imports at its top and in functions, and the modules that its strings name."""
    nodes = list(run(parsed(path)))
    return (
        {name for node in nodes for name in imported(node)},
        {name for node in nodes for name in named(node)},
    )


def module_imports(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Which modules each module imports: at its top, in functions, and by strings."""
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        others, strings = names_of(path)
        others = others | strings & modules.keys()
        found[module] = {name for name in others if name.split(".")[0] == "glit"} - {module}
    return found


def folder_of(module: str) -> str:
    """The folder of glit, or the file beside the folders: ``glit.pipeline``, ``glit.images``."""
    return ".".join(module.split(".")[:2])


def is_within(module: str, folders: Iterable[str]) -> bool:
    """Return whether a module is one of these folders, or in one."""
    return any(f"{module}.".startswith(f"{folder}.") for folder in folders)


def folder_imports(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Which folders each folder imports; see :func:`module_imports`."""
    found: dict[str, set[str]] = {}
    for module, others in module_imports(modules).items():
        own = folder_of(module)
        found.setdefault(own, set()).update({folder_of(name) for name in others} - {own})
    return found


def reached(start: Iterable[str], imports: Mapping[str, set[str]]) -> dict[str, str]:
    """Every module that others import, through any number of modules, and one that imports it.

    A module imports the packages that it is in, as Python does.
    """
    found = dict.fromkeys(start, "")
    waiting = list(found)
    while waiting:
        module = waiting.pop()
        parts = module.split(".")
        packages = {".".join(parts[:end]) for end in range(2, len(parts))}
        for name in (imports.get(module, set()) | packages) - found.keys():
            found[name] = module
            waiting.append(name)
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


IN_A_CIRCLE = {
    ("glit.bench.lism_flism.columns", "glit.bench.lism_flism.in_glit"): "a name for workers",
    ("glit.bench.lism_flism.columns", "glit.bench.lism_flism.scripts"): "a name for workers",
}
"""Imports that make a circle of modules within one folder, each with the reason."""


def test_imports_between_modules_never_go_round():
    """Within a folder too, and in functions."""
    imports = module_imports(MODULES)
    for module, other in IN_A_CIRCLE:
        imports[module].remove(other)  # KeyError: it is no import any more
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the modules


BUILDER = ("glit.stages", "glit.models.backends", "glit.pipeline", "glit.view")
LEARNER = ("glit.training", "glit.evaluation")
OF_STAGES = {
    "glit.dataset.card": "titles of the steps that a recipe names",
    "glit.dataset.croissant": "columns that stages add",
    "glit.dataset.verify": "reasons of drops",
}
"""Modules of datasets that read the list of stages, each with what they take from it."""


@pytest.mark.parametrize(
    ("own", "others"), [(LEARNER, BUILDER), (BUILDER, LEARNER)], ids=("learner", "builder")
)
def test_builder_and_learner_meet_in_datasets_and_below_alone(own, others):
    """No module of the one imports a module of the other, through any number of modules."""
    start = [name for name in MODULES if is_within(name, own)]
    found = reached(start, module_imports(MODULES))
    assert {"glit.dataset.manifest", "glit.data.records"} <= found.keys()
    for module, importer in found.items():
        assert not is_within(module, others), f"{importer}: {module}"


def test_datasets_import_only_the_list_of_stages():
    imports = module_imports(MODULES)
    found = {
        (module, folder_of(name))
        for module in imports
        if folder_of(module) == "glit.dataset"
        for name in imports[module]
        if is_within(name, (*BUILDER, *LEARNER))
    }
    assert found == {(module, "glit.stages") for module in OF_STAGES}


STEPS_NAMED = {
    "glit.cli.curate": "whether images alike were left out",
    "glit.dataset.croissant": "what annotation and collection did, in words",
    "glit.dataset.manifest": "properties of a recorded recipe",
    "glit.dataset.recorded_rules": "the rule of the pairs",
    "glit.dataset.training_summary": "what was read of rights",
    "glit.dataset.verify": "whether pictures were encoded again",
    "glit.exporters.common_pictures": "whether coordinates of photographs were kept",
    "glit.review.label.judging_model": "a judge is opened as a captioner is",
    "glit.recipes.trust": "prompts that a recipe reads",
    "glit.view.explain": "the rule of the pairs",
    "glit.view.story": "the rule of the pairs, and scores from files",
}
"""Modules outside of the builder that write a step's name to look into a recipe, and what for."""


def names_steps(path: Path) -> bool:
    """Whether a module looks a step up in tables, or asks whether one has this name."""
    names = {step.name for step in all_steps()}

    def is_name(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and node.value in names

    for node in nodes_of(path):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="table" | "get" | "config")):
                if any(map(is_name, node.args)) and (
                    node.func.attr != "get" or re.search(r"tables|recipe", ast.unparse(of))
                ):
                    return True
            case ast.Subscript(value=of) if is_name(node.slice):
                if re.search(r"tables|configs|recipe", ast.unparse(of)):
                    return True
            case ast.Compare(ops=[ast.Eq() | ast.NotEq()]) if re.search(
                r"stage|step", ast.unparse(node.left)
            ):
                if any(map(is_name, node.comparators)):
                    return True
    return False


def test_a_step_is_named_where_it_is_declared_and_in_few_other_modules():
    found = {name for name, path in MODULES.items() if names_steps(path)}
    assert {name for name in found if folder_of(name) != "glit.stages"} == STEPS_NAMED.keys()


def test_a_circle_of_imports_is_found(tmp_path):
    """Through a function and a string too, but not for type checkers."""
    texts = {
        "glit.a.x": "def f():\n    from glit.b import thing",
        "glit.b.y": "try:\n    import glit.a.x\nexcept ImportError:\n    pass",
        "glit.c": "if TYPE_CHECKING:\n    import glit.a\nelse:\n    import glit.b",
        "glit.d": "from glit.c import x\nPLACES = {'y': 'glit.b.y:Y', 'words': 'glit.b is here'}",
        "glit.e.x": "import_module(f'glit.e.{name}')",
        "glit.e": "",
    }
    files = {}
    for number, (module, text) in enumerate(texts.items()):
        files[module] = tmp_path / f"{number}.py"
        files[module].write_text(text)
    imports = folder_imports(files)
    assert imports == {
        "glit.a": {"glit.b"}, "glit.b": {"glit.a"}, "glit.c": {"glit.b"},
        "glit.d": {"glit.b", "glit.c"}, "glit.e": set(),
    }  # fmt: skip
    modules = module_imports(files)
    assert modules["glit.e.x"] == {"glit.e"}
    assert set(reached(["glit.d"], modules)) == {
        "glit.d", "glit.c", "glit.b", "glit.b.y", "glit.a.x", "glit.a",
    }  # fmt: skip
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports).prepare()


def test_only_the_executors_import_ray():
    """Anywhere in a module, functions included."""
    importing = {
        module
        for module, path in MODULES.items()
        for node in nodes_of(path)
        for name in imported(node)
        if name.split(".")[0] == "ray"
    }
    names = ("on_ray", "ray_actor", "ray_pool", "ray_suspect")
    assert importing == {f"glit.pipeline.executors.{name}" for name in names}


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
        for node in nodes_of(path)
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
        tree = parsed(path)
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        nodes = [node for node in ast.walk(tree) if node not in for_types]
        found |= {name for node in nodes for name in imported(node)}
    assert "glit.api" in found
    beside = ("glit.pipeline.planning", "glit.pipeline.executors")
    assert {name for name in found if is_within(name, ["glit.pipeline"])} == {
        name for name in found if is_within(name, beside)
    }


def test_a_request_ends_at_the_door():
    """Only the module that defines it takes one; others make it, and hand it over there."""
    taking = {
        module
        for module, path in MODULES.items()
        for node in nodes_of(path)
        if isinstance(node, ast.arg) and node.annotation is not None
        if "BuildRequest" in ast.unparse(node.annotation)
    }
    assert taking == {"glit.pipeline.build"}
