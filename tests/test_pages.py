"""Pages that tools write: docs/operators.md and docs/stages.md."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["operators", "stages"])
def test_the_page_is_up_to_date(name, tmp_path):
    # in a process of its own: other tests add rows to the table
    subprocess.run([sys.executable, ROOT / "tools" / f"{name}.py", tmp_path / "page.md"], check=True)
    assert (ROOT / "docs" / f"{name}.md").read_text() == (tmp_path / "page.md").read_text(), f"run: python tools/{name}.py"
