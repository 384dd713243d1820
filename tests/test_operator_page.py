"""docs/operators.md is what tools/operators.py writes."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_the_page_is_up_to_date():
    sys.path.insert(0, str(ROOT / "tools"))
    import operators
    assert (ROOT / "docs" / "operators.md").read_text() == operators.page(), "run: python tools/operators.py"
