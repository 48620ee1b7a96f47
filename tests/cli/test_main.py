"""The command itself: it starts fast, and each mistake gives one line."""

import os
import signal
import subprocess
import sys
from importlib import import_module

import pytest

from universal_transformer import __version__
from universal_transformer.cli import COMMANDS, SHARED, main
from universal_transformer.cli.output import say
from universal_transformer.cli.parser import Place, options_of
from universal_transformer.errors import UserError


def ut(*arguments, **options):
    """Run `ut` in a process of its own."""
    code = "import sys; from universal_transformer.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["trian"]])
def test_the_top_level_imports_nothing_heavy(arguments):
    code = (
        "import sys; from universal_transformer.cli import main; main(sys.argv[1:]);"
        "print(sorted({'torch', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in shown
        assert summary in shown


def test_without_arguments_help_is_shown_and_nothing_was_done(capsys):
    assert main([]) == 2
    assert "usage: ut COMMAND" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ut {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_of_several_processes_only_what_they_share_is_begun(command, monkeypatch, capsys):
    """Otherwise each of them would answer the same."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, printed = main([command, "--help"]), capsys.readouterr()
    assert code == (0 if command in SHARED else 2)
    assert (f"ut {command} runs in one process" in printed.err) == (code == 2)


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, option, capsys):
    assert main([command, option]) == 0
    assert f"usage: ut {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_says_what_it_means(command):
    module, _, kind = COMMANDS[command][0].partition(":")
    for option in options_of(getattr(import_module(module, "universal_transformer.cli"), kind)):
        assert option.text or option.written.place in (Place.FIELDS, Place.ALL), option.field


def test_the_top_level_answers_at_once():
    """In processor time, which other processes do not lengthen."""
    code = (
        "import sys, resource; from universal_transformer.cli import main; main(['--help']);"
        "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout.split()[-1]) for run in runs) < 0.3


GREET = """
from dataclasses import dataclass
from typing import Annotated
from universal_transformer.cli.parser import Place, OptionForm

@dataclass(frozen=True, kw_only=True)
class Greet:
    \"\"\"Greet people.\"\"\"

    names: Annotated[tuple[str, ...], OptionForm("NAME", place=Place.WORD)]
    \"\"\"Whom to greet.\"\"\"
    times: int = 1
    \"\"\"How often.\"\"\"
    aloud: bool = False
    \"\"\"In capital letters.\"\"\"

    def __call__(self):
        print(*[name.upper() if self.aloud else name for name in self.names] * self.times)
        return 0
"""


def test_a_command_is_one_file_and_one_line_of_the_registry(tmp_path, monkeypatch, capsys):
    (tmp_path / "greet.py").write_text(GREET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "greet", ("greet:Greet", "greet people"))
    assert main(["greet", "Ada", "--times", "2", "Alan", "--aloud"]) == 0
    assert capsys.readouterr().out == "ADA ALAN ADA ALAN\n"
    assert main(["--help"]) == 0
    assert "  greet      greet people" in capsys.readouterr().out
    assert main(["greet", "--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "usage: ut greet NAME [NAME ...] [options] Greet people." in page
    assert "--times N How often. (default: 1)" in page.replace("often (", "often. (")
    assert main(["greet"]) == 2
    assert main(["greet", "Ada", "--tims", "2"]) == 2
    assert main(["greet", "Ada", "--times", "many"]) == 2
    required, unknown, wrong = capsys.readouterr().err.splitlines()
    assert "required: NAME" in required
    assert "unknown option --tims (did you mean --times?)" in unknown
    assert wrong == "ut: --times: expected a whole number, found 'many'"


def test_a_closed_pipe_is_no_error():
    """`ut recipes | head -1` ends without a traceback."""
    code = "import sys; from universal_transformer.cli import main; sys.exit(main(['recipes']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert stderr == ""


def test_a_second_interrupt_at_the_exit_of_the_process_is_ignored(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ut", "--version"])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_one_line_and_130(monkeypatch, capsys):
    from universal_transformer.cli.recipes import Recipes

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Recipes, "__call__", interrupted)
    assert main(["recipes"]) == 130
    assert capsys.readouterr().err == "ut: interrupted\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device", "runs/a"), "ut: runs/a: No space left on device\n"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "ut: not enough memory"),
        (MemoryError(), "ut: not enough memory"),
        (RuntimeError("could not create a primitive"), "ut: not enough memory"),
        (RuntimeError("could not create a primitive descriptor for a matmul primitive"), "ut: not enough memory"),
        (RuntimeError("std::bad_alloc"), "ut: not enough memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory"), "ut: not enough"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), "ut: not enough"),
    ],
)
def test_what_the_machine_refuses_is_one_line(error, expected, monkeypatch, capsys):
    from universal_transformer.cli.recipes import Recipes

    def refused(_):
        raise error

    monkeypatch.setattr(Recipes, "__call__", refused)
    assert main(["recipes"]) == 2
    found = capsys.readouterr().err
    assert found.startswith(expected)
    assert found.count("\n") == 1


def refused_with(error, monkeypatch, capsys):
    """What `ut` prints when a command raises `error`."""
    from universal_transformer.cli.recipes import Recipes

    def refuse(_):
        raise error

    monkeypatch.setattr(Recipes, "__call__", refuse)
    assert main(["recipes"]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("kind", [UserError, OSError])
def test_a_line_of_an_error_has_no_control_characters_and_at_most_500(kind, monkeypatch, capsys):
    found = refused_with(kind("\x1b[2J\x9b31m\u202efile:\r\n" + "x" * 5000 + ": no such file"), monkeypatch, capsys)
    assert found.startswith("ut: [2J31mfile: xxx")
    assert found.endswith("xxx: no such file\n")
    assert found.count("…") == 1
    assert len(found) == 501


def test_a_line_of_500_characters_is_whole(monkeypatch, capsys):
    message = "y" * 496
    assert refused_with(UserError(message), monkeypatch, capsys) == f"ut: {message}\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_are_kept_from_a_terminal_only(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    say("a\x1b]0;title\x07b")
    assert capsys.readouterr().out == ("a]0;titleb\n" if terminal else "a\x1b]0;title\x07b\n")


def test_a_programming_error_is_not_hidden(monkeypatch):
    from universal_transformer.cli.recipes import Recipes

    def broken(_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Recipes, "__call__", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["recipes"])


def test_closed_output_is_no_error(tmp_path):
    code = "import sys; from universal_transformer.cli import main; sys.exit(main(sys.argv[1:]))"
    for arguments, expected in (["recipes"], 0), (["trian"], 2):
        command = [
            "sh",
            "-c",
            'exec "$@" >&- 2>"$0"',
            tmp_path / "err",
            sys.executable,
            "-c",
            code,
            *arguments,
        ]
        assert subprocess.run(command, check=False).returncode == expected
        assert (tmp_path / "err").read_text().count("\n") == (expected == 2)


def test_characters_that_the_output_cannot_encode_are_escaped():
    done = ut("recipes", "table1", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_folder_is_named_in_utf_8(tmp_path):
    done = ut("train", "stories", "--run", b"caf\xe9", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ut: caf\\udce9: the name of this run folder is not UTF-8")
    assert not list(tmp_path.iterdir())
