"""The command itself: it starts fast, and each mistake gives one line."""

import os
import subprocess
import sys

import pytest

from universal_transformer import __version__
from universal_transformer.cli import COMMANDS, main
from universal_transformer.cli.arguments import say
from universal_transformer.errors import UserError


def ut(*arguments, **options):
    """Run `ut` in a process of its own."""
    code = "import sys; from universal_transformer.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["trian"]])
def test_the_top_level_imports_nothing_heavy(arguments):
    code = (
        "import sys; from universal_transformer.cli import main; main(sys.argv[1:]);"
        "print(sorted({'torch', 'tyro', 'numpy', 'rich', 'tokenizers'} & set(sys.modules)))"
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


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "train"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: ut {command}" in capsys.readouterr().out


def test_a_closed_pipe_is_no_error():
    """`ut recipes | head -1` ends without a traceback."""
    code = "import sys; from universal_transformer.cli import main; sys.exit(main(['recipes']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert stderr == ""


def test_an_interrupt_is_one_line_and_130(monkeypatch, capsys):
    from universal_transformer.cli import recipes

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recipes, "run", interrupted)
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
    from universal_transformer.cli import recipes

    def refused(_):
        raise error

    monkeypatch.setattr(recipes, "run", refused)
    assert main(["recipes"]) == 2
    found = capsys.readouterr().err
    assert found.startswith(expected)
    assert found.count("\n") == 1


def refused_with(error, monkeypatch, capsys):
    """What `ut` prints when a command raises `error`."""
    from universal_transformer.cli import recipes

    def refuse(_):
        raise error

    monkeypatch.setattr(recipes, "run", refuse)
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
    from universal_transformer.cli import recipes

    def broken(_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(recipes, "run", broken)
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
