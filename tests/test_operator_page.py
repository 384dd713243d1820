"""docs/operators.md is what tools/operators.py writes."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_the_page_is_up_to_date(tmp_path):
    # in a process of its own: other tests add rows to the table
    subprocess.run([sys.executable, ROOT / "tools" / "operators.py", tmp_path / "page.md"], check=True)
    assert (ROOT / "docs" / "operators.md").read_text() == (tmp_path / "page.md").read_text(), "run: python tools/operators.py"
