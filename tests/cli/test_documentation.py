"""What docs/command-line.md shows is what the commands say."""
import re

import pytest
from commands import ROOT, in_a_process

PAGE = (ROOT / "docs" / "command-line.md").read_text()
SHOWN = re.findall(r"^```\n\$ dcml (.*)\n([^`]*)^```$", PAGE, re.M)


def shape_of(text):
    """The lines without numbers, widths and times, which differ between machines and runs, and without what stands in
    the order of times."""
    lines = text.partition("\n  passes ")[0].splitlines()
    return [re.sub(r"\s+", " ", re.sub(r"-?\d[\d.e+-]*( [mu]?s\b)?", "#", line)).strip() for line in lines]


@pytest.mark.parametrize("command, output", [pair for pair in SHOWN if pair[0] != "doctor"], ids=[c for c, _ in SHOWN if c != "doctor"])
def test_commands_say_what_is_shown(command, output, tmp_path):
    words = [str(ROOT / word) if word.startswith("tests/") else word for word in command.split()]
    done = in_a_process(*words, cwd=tmp_path)
    assert done.returncode in (0, 1)
    said = done.stdout if command.startswith(("bisect", "opt", "run", "explain", "profile")) else done.stderr + done.stdout
    assert shape_of(said) == shape_of(output)


def test_every_command_is_shown():
    from dcml.cli import COMMANDS
    assert {command.split()[0] for command, _ in SHOWN} == set(COMMANDS)
