"""The rules of the house that no other tool holds: pages and snapshots of errors, docstrings of files, walls."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

import treadle
from treadle.base.errors import InternalError, LimitError, TreadleError, UserError, registry

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "treadle"
OPTIONAL = {"cuda", "cupy", "ortools", "safetensors", "tokenizers", "torch"}
ROOMS = sorted(p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("__init__.py") if p.parent != SOURCE)
MODULES = sorted(SOURCE.rglob("*.py"))


def module_id(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.fixture(scope="module")
def codes() -> dict[str, type[TreadleError]]:
    """All codes of treadle, with every module imported that the installed extras allow."""
    for found in pkgutil.walk_packages(treadle.__path__, "treadle."):
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "").split(".")[0] not in OPTIONAL:
                raise
    return {code: cls for code, cls in registry.items() if cls.__module__.startswith("treadle.")}


def test_codes_are_well_formed(codes: dict[str, type[TreadleError]]) -> None:
    assert codes
    assert [c for c in codes if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*", c)] == []
    assert [c for c, cls in codes.items() if not issubclass(cls, (UserError, LimitError, InternalError))] == []


def test_every_code_has_a_page(codes: dict[str, type[TreadleError]]) -> None:
    pages = {p.stem: p.read_text() for p in (ROOT / "docs" / "errors").glob("*.md")}
    headings = {stem: "\n".join(re.findall(r"^#+ .*$", text, flags=re.M)) for stem, text in pages.items()}
    missing = [
        c for c in sorted(codes) if not re.search(rf"{re.escape(c)}(?![\w-])", headings.get(c.split("/")[0], ""))
    ]
    assert missing == [], "no heading in docs/errors for these codes"


def test_every_page_is_about_codes_that_exist(codes: dict[str, type[TreadleError]]) -> None:
    named: set[str] = set()
    for page in (ROOT / "docs" / "errors").glob("*.md"):
        for heading in re.findall(r"^#+ .*$", page.read_text(), flags=re.M):
            named |= set(re.findall(rf"\b{re.escape(page.stem)}/[a-z0-9-]+", heading))
    assert sorted(named - set(codes)) == []


def test_every_code_has_a_snapshot(codes: dict[str, type[TreadleError]]) -> None:
    text = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("__snapshots__/*") if p.is_file())
    begins = set(re.findall(r"([a-z0-9-]+/[a-z0-9-]+): (?:mistake|not supported|bug in treadle) while ", text))
    assert [c for c in sorted(codes) if c not in begins] == [], "no snapshot of the exact text for these codes"


def test_files_say_what_they_are_for() -> None:
    silent = [module_id(p) for p in MODULES if len((ast.get_docstring(ast.parse(p.read_text())) or "").split()) < 5]
    assert silent == []
    # Importing one file of algebra must not import the others: the checker may see only some of them.
    tree = ast.parse((SOURCE / "algebra" / "__init__.py").read_text())
    named = [
        n.names[0].name if isinstance(n, ast.Import) else n.module
        for n in ast.walk(tree)
        if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    assert named == ["__future__", "importlib", "typing"]


def test_public_names_say_what_they_are() -> None:
    """Functions and classes of a file that other files may use have a docstring."""
    silent: list[str] = []
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                silent.append(f"{module_id(path)}: {node.name}")
    assert silent == []


def test_files_have_names_that_say_something() -> None:
    nameless = re.compile(r"(.*/)?(utils?|helpers?|common|misc|new_\w*|\w*_v2)(/__init__)?\.py")
    assert [module_id(p) for p in MODULES if nameless.fullmatch(module_id(p))] == []


def test_raised_errors_have_a_class() -> None:
    plain: list[str] = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                call = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if isinstance(call, ast.Name) and call.id in {"Exception", "RuntimeError", "NotImplementedError"}:
                    plain.append(f"{module_id(path)}:{node.lineno}: raise {call.id}")
    assert plain == []


OPERATORS = re.compile(r"gemm|attention|softmax|gelu|layer_?norm|rms_?norm|swiglu|matmul|convolution|transformer", re.I)


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Identifiers and string constants, docstrings left out."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    prose = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, documented) and n.body and isinstance(n.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


@pytest.mark.parametrize(
    "room", ["planner", "realise", "targets", "checker", "machine", "ir", "plan", "rules", "simulate"]
)
def test_no_room_below_lib_names_an_operator(room: str) -> None:
    found = [
        f"{module_id(path)}:{line}: {word}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for line, word in words(ast.parse(path.read_text()))
        if OPERATORS.search(word)
    ]
    assert found == []


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("treadle", cache_dir=None)


CHECKER_MAY_IMPORT = ("base", "dtype", "ir", "hardware", "plan", "machine", "checker")
CHECKER_MAY_IMPORT_OF_ALGEBRA = ("expr", "expr_text", "dims", "isl_text", "lemmas", "maps", "monoids", "sets")


def test_checker_stands_on_listed_files_only(graph: grimp.ImportGraph) -> None:
    allowed = [f"treadle.{room}" for room in CHECKER_MAY_IMPORT]
    allowed += [f"treadle.algebra.{file}" for file in CHECKER_MAY_IMPORT_OF_ALGEBRA]
    seen = graph.find_upstream_modules("treadle.checker", as_package=True)
    outside = [m for m in seen if not any(m == a or m.startswith(a + ".") for a in allowed)]
    assert sorted(outside) == []


def test_check_lives_without_the_planning_rooms(graph: grimp.ImportGraph) -> None:
    seen = graph.find_upstream_modules("treadle.driver.check")
    planning = ("planner", "rules", "realise", "targets", "toolchain", "runtime", "simulate")
    assert [m for m in sorted(seen) if m.split(".")[1:2] and m.split(".")[1] in planning] == []
    assert any(m.startswith("treadle.checker") for m in seen)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_tracked_files_are_plain_files() -> None:
    """Mode 120000 is a link and 160000 another repository: what either leads to is not in a clean clone."""
    listed = subprocess.run(["git", "ls-files", "-z", "-s"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    modes = {line.split("\t", 1)[1]: line.split()[0] for line in listed.split("\0") if line}
    assert modes and {name: mode for name, mode in modes.items() if mode not in ("100644", "100755")} == {}


def test_no_machine_paths_in_tracked_files() -> None:
    # Written in two parts, so that this file does not hold them.
    pattern = re.compile("|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + r"me/\w", "index" + "-url", "/opt/py" + "pi"]))
    found: list[str] = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in pattern.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    "name",
    [
        *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "docs/map.md", "docs/life_of_a_kernel.md"),
        *("docs/semantics.md", "docs/machine_format.md", "docs/status.md"),
    ],
)
def test_pages_exist(name: str) -> None:
    assert len((ROOT / name).read_text().split()) >= 50


def test_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "./dev demo" in text and "./dev test" in text


def test_map_names_every_room() -> None:
    text = (ROOT / "docs" / "map.md").read_text()
    assert [room for room in ROOMS if f"`{room}`" not in text and f"`{room.split('/')[0]}" not in text] == []


MARK = re.compile(r"#\s*(?:type:\s*ignore|pyright:|(?:(?:ruff|flake8):\s*)?noqa)(?P<rest>.*)$", re.IGNORECASE)
REASON = re.compile(r"^(?: ?ignore)?(?:\[[^\]]+\]|: ?[A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*)(?:  # \S| \(\S)")


def marks(text: str) -> Iterator[tuple[str, bool]]:
    """The lines that tell a tool to overlook something, each with whether it says what, and why beside it."""
    for line in text.splitlines():
        if mark := MARK.search(line):
            yield line, REASON.match(mark["rest"]) is not None


def test_what_a_tool_is_told_to_overlook_has_a_reason() -> None:
    """Beside each mark, of a line or of a whole file, stands why; what is not type-checked needs no marks for types."""
    found = [
        (path, line, why)
        for path in tracked()
        if path.suffix == ".py" and path.name != Path(__file__).name
        for line, why in marks(path.read_text())
    ]
    assert any(line.startswith("# ruff: ") for _, line, _ in found)
    assert [f"{path.relative_to(ROOT)}: {line}" for path, line, why in found if not why] == []
    typed = [path for path, line, _ in found if "ignore" in line.split("#", 1)[1]]
    assert [str(path) for path in typed if ROOT / "src" not in path.parents] == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x = f()  # noqa: E731 (why)", True),
        ("x = f()  # noqa: F821, UP037 (why)", True),
        ("x = f()  # wrong  # noqa: F821", False),
        ("x = f()  # noqa: E731", False),
        ("x = f()  # noqa", False),
        ("x = f()  #NOQA", False),
        ("x = f()  # noqa (why)", False),
        ("# ruff: noqa: E501 (why)", True),
        ("# ruff: noqa: E501", False),
        ("# ruff: noqa", False),
        ("# flake8: noqa", False),
        ("x = f()  # type: ignore[call]  # why", True),
        ("x = f()  # type: ignore[call]", False),
        ("x = f()  # type: ignore", False),
        ("x = f()  # pyright: ignore[reportCall] (why)", True),
        ("# pyright: basic", False),
    ],
)
def test_every_mark_is_seen(line: str, why: bool) -> None:
    assert list(marks(line)) == [(line, why)]


SKIPS = {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip"}
NEVER = {"pytest.xfail", "pytest.mark.xfail", "unittest.skip", "unittest.SkipTest"}


def skips(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines on which tests are skipped, with the reason as it begins; empty for one without, and for ways that this
    project does not use."""
    called = {id(n.func): n for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("pytest", "unittest"):
            yield node.lineno, ""
        name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if name not in SKIPS | NEVER:
            continue
        call = called.get(id(node))
        given = [k.value for k in call.keywords if k.arg == "reason"] if call and name in SKIPS else []
        if call and not given and name == "pytest.skip":
            given = call.args[:1]
        text = given[0].values[0] if given and isinstance(given[0], ast.JoinedStr) else given[0] if given else None
        yield node.lineno, text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""


NEEDED = re.compile(r"needs (?:\S|$)")


def test_a_skipped_test_says_what_it_needs() -> None:
    """The device, extra, feature, package or system whose lack skips it: `needs ...`. Nothing else skips, and no
    test is known to fail."""
    found = [
        (path, line, reason)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name != Path(__file__).name
        for line, reason in skips(ast.parse(path.read_text()))
    ]
    assert found
    assert [f"{path.relative_to(ROOT)}:{line}: {r}" for path, line, r in found if not NEEDED.match(r)] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pytest.skip('later')", "later"),
        ("pytest.skip(f'needs {x}')", "needs "),
        ("@pytest.mark.skip\ndef test_it(): pass", ""),
        ("mark = pytest.mark.skipif(True, reason='flaky')", "flaky"),
        ("pytest.importorskip('torch')", ""),
        ("@pytest.mark.xfail(reason='needs work')\ndef test_it(): pass", ""),
        ("from pytest import skip", ""),
    ],
)
def test_every_way_to_skip_is_seen(text: str, reason: str) -> None:
    assert [found for _, found in skips(ast.parse(text))] == [reason]


UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def test_nothing_is_left_for_later() -> None:
    """What is not done is an error with a code or a line of docs/status.md."""
    found = [
        f"{path.relative_to(ROOT)}: {m.group()}"
        for path in tracked()
        if path.suffix in (".py", ".v", ".ml") or path.name in ("dev", "run")
        for m in UNFINISHED.finditer(path.read_text())
    ]
    assert found == []
