"""One vocabulary for all commands: arguments, flags, defaults of --out, help, and what a typing error costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from warmpot.cli import app
from warmpot.cli._command import RENAMED
from warmpot.cli._shared import default_out

ROOT: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {
    **{name: command for name, command in ROOT.commands.items() if name != "bench"},
    **{f"bench {name}": command for name, command in ROOT.commands["bench"].commands.items()},
}
HEAVY = ("torch", "numpy", "scipy", "sklearn", "numba", "pandas", "matplotlib", "rich", "yaml")


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def flag(command: str, name: str) -> Any:
    return next((param for param in COMMANDS[command].params if name in param.opts), None)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal(command: str) -> None:
    short, long = (run(*command.split(), option) for option in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.stdout == long.stdout
    assert max(map(len, short.stdout.splitlines())) <= 80
    assert "{" not in short.stdout.partition("\n")[0]  # braces mean a choice
    assert "..." not in short.stdout.partition("Commands:")[2]  # no summary is cut off


@pytest.mark.parametrize("command", ["fit", "sweep", "weights", "doctor"])
def test_source_and_target_are_arguments(command: str) -> None:
    names = [param.name for param in COMMANDS[command].params if param.param_type_name == "argument"]
    assert names == ["source", "target"]


def test_no_command_needs_an_output() -> None:
    outs = {name: flag(name, "--out") for name in COMMANDS if flag(name, "--out")}
    assert {"fit", "sweep", "predict", "weights", "extract", "bench run"} <= set(outs)
    assert [name for name, option in outs.items() if option.required] == []


def test_flags_mean_one_thing() -> None:
    """Options of the same name have the same help, whatever the command, up to the default and what is written."""
    meanings: dict[str, dict[str, str]] = {}
    for command, parts in COMMANDS.items():
        for param in parts.params:
            for name in param.opts if param.param_type_name == "option" else ():
                meanings.setdefault(name, {})[command] = (param.help or "").partition(" [default")[0]
    assert list(meanings["--weights"]) == ["fit"]
    assert set(meanings["--workers"]) == {"fit", "extract"}
    for name in ("--workers", "--jobs", "--backbone-weights", "--id", "--feature", "--quiet", "--set", "--corrupt"):
        texts = {text for command, text in meanings[name].items() if (name, command) != ("--set", "bench run")}
        assert len(texts) == 1, name


def test_options_are_in_panels() -> None:
    text = run("fit", "-h").stdout
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles[0] == "Arguments:"
    assert "Options:" in titles
    assert {"Method and settings:", "Columns of tables:", "Images:", "Processes and devices:"} <= set(titles)
    assert text.index("Images:") < text.index("--backbone ")
    assert "--source" not in text  # it works, but is not shown


@pytest.mark.parametrize(("command", "old"), [(name, old) for name, flags in RENAMED.items() for old in flags])
def test_renamed_flags_still_work_with_a_warning(command: str, old: str) -> None:
    new = RENAMED[command][old]
    words = ["bench", "run"] if command == "run" else [command]
    rest = [] if command == "run" else ["nowhere"] * (2 if command == "sweep" else 1)
    for form in ([old, "1"], [f"{old}=1"]):
        result = run(*words, *rest, *form)
        assert f"warning: {old} is now called {new};" in result.stderr
        assert "No such option" not in result.stderr
    assert "warning" not in run(*words, *rest, new, "1").stderr


def test_default_outputs_are_never_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = Path("data/a.npz"), Path("b.csv")
    assert default_out(source, target, "weights", suffix=".csv") == Path("runs/a-b-weights.csv")
    Path("runs").mkdir()
    for name in ("a-b-weights.csv", "a-b-weights-2.csv"):
        (Path("runs") / name).touch()
    assert default_out(source, target, "weights", suffix=".csv") == Path("runs/a-b-weights-3.csv")
    assert default_out(source, target, "weights", suffix=".csv", continues=True) == Path("runs/a-b-weights.csv")
    assert default_out(Path(), "features") == Path("runs") / f"{tmp_path.name}-features"


def test_weights_without_out_by_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("s", "t"):
        np.savez(f"{name}.npz", X=rng.normal(size=(8, 3)))
    assert "Wrote runs/s-t-weights.csv" in run("weights", "s.npz", "t.npz").stdout
    assert "Wrote runs/s-t-weights-2.csv" in run("weights", "--source", "s.npz", "--target", "t.npz").stdout
    first, second = (Path(f"runs/s-t-weights{end}.csv").read_text() for end in ("", "-2"))
    assert first == second
    result = run("weights", "s.npz", "--source", "s.npz", "--target", "t.npz")
    assert (result.exit_code, "--source: got SOURCE as well" in result.stderr) == (2, True)
    assert "SOURCE TARGET: got no target" in run("weights", "s.npz").stderr


@pytest.mark.parametrize(
    "words",
    [["--help"], ["fit", "--alhpa", "1"], ["fti"], ["fit", "none.npz", "n.npz"], ["weights", "none.npz", "n.npz"],
     ["doctor", "none.npz", "n.npz"], ["report", "none"], ["fit", "--source", "none.npz"]],
)  # fmt: skip
def test_a_typing_error_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    code = "import sys; from warmpot.cli import main\ntry: main()\nfinally: print('MODULES', *sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.returncode == (0 if words == ["--help"] else 2), process.stderr
    modules = set(process.stdout.rpartition("MODULES")[2].split())
    allowed = {"rich"} if "none" in " ".join(words) else set()  # of the line that reports the error
    assert modules & set(HEAVY) <= allowed
    assert len(process.stderr.splitlines()) == (1 if "none" in " ".join(words) else len(process.stderr.splitlines()))


@pytest.mark.parametrize(
    ("words", "text"),
    [(["--method", "armp"], "--method: got 'armp'"), (["--preset", "fulll"], "Did you mean 'full'?")],
)
def test_a_mistyped_name_is_reported_without_torch(words: list[str], text: str, tmp_path: Path) -> None:
    for name in ("s.npz", "t.npz"):
        (tmp_path / name).touch()
    code = "import sys; from warmpot.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code, "fit", "s.npz", "t.npz", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (process.returncode, text in process.stderr) == (2, True)
    assert not {"torch", "numpy", "scipy"} & set(process.stdout.split())


def test_every_method_is_known_without_importing_it() -> None:
    from warmpot.methods import METHODS
    from warmpot.train.recipes import preset_names, read_preset

    assert {read_preset(name)["method"] for name in preset_names()} == set(METHODS)


FIRST_LINES = """
import builtins, sys
from warmpot.cli import main
real = builtins.__import__

def light(name, *rest, **more):
    if name.partition(".")[0] in ("numpy", "torch", "scipy"):
        raise SystemExit("too late")
    return real(name, *rest, **more)

builtins.__import__ = light
for words in ("predict run data", "export run", "explain run 0", "report run", "bound run", "extract data",
              "weights data data", "fit data data", "sweep data data"):
    print("COMMAND", words, file=sys.stderr)
    sys.argv = ["warmpot", *words.split()]
    try:
        main()
    except SystemExit as stop:
        print(stop, file=sys.stderr)
"""


def test_the_first_line_comes_before_heavy_imports(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "data").mkdir()
    process = subprocess.run([sys.executable, "-c", FIRST_LINES], cwd=tmp_path, capture_output=True, text=True)
    blocks = [block.splitlines() for block in process.stderr.split("COMMAND ")[1:]]
    assert len(blocks) == 9
    for command, first, *_ in blocks:
        assert first.startswith("reading "), (command, first)
