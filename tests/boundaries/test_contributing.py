"""The tests of a file are where the guide says: `tests/` has the folders of `jaxops/`."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Tests of everything, which no folder of jaxops/ has the name of.
OF_ALL = {"benchmarks", "boundaries", "conformance", "fuzz", "install", "models", "platforms", "typing"}
GUIDE = json.loads((ROOT / "notebooks" / "how_it_is_built.ipynb").read_text())
(CONTRIBUTING,) = (text for cell in GUIDE["cells"] if (text := "".join(cell["source"])).startswith("## Contributing"))
ROWS = [row.split("|")[1:4] for row in re.findall(r"^\| `.*\|$", CONTRIBUTING, re.MULTILINE)]


def folders(root: Path) -> set[str]:
    return {str(path.parent.relative_to(root)) for path in root.rglob("*.py")} - {"."}


def misplaced(tests: set[str], source: set[str]) -> set[str]:
    return {folder for folder in tests - source if folder.split("/")[0] not in OF_ALL}


def test_test_folders_mirror_the_package():
    tests, source = folders(ROOT / "tests"), folders(ROOT / "jaxops")
    assert misplaced(tests, source) == set()
    assert misplaced({"ops/mathematics"}, source) == {"ops/mathematics"}


def test_the_guide_names_the_tests_of_each_room():
    rooms = " ".join(changed for changed, *_ in ROWS)
    assert len(ROWS) > 8
    assert {folder for path in folders(ROOT / "jaxops") if f"`{(folder := path.split('/')[0])}/" not in rooms} == set()
    named = re.findall(r"`(tests/[^`]+)`", " ".join(f"{first} {then}" for _, first, then in ROWS))
    assert len(named) > 20
    assert [path for path in named if not list(ROOT.glob(re.sub(r"/[A-Z]$", "/*", path)))] == []
