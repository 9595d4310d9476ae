"""The documentation site: `pip install ".[docs]"`, then `sphinx-build -W docs site`."""

import importlib.metadata
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The pages of the repository outside docs/, and their names in docs/project/.
PROJECT = {
    "README.md": "about",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changes",
    "bench/README.md": "benchmarks",
}

project = "patrac_native"
version = release = importlib.metadata.version(project)
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["pictures"]

myst_heading_anchors = 4  # as GitHub makes them
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have them
default_role = "code"  # of names in single backquotes
numpydoc_show_class_members = False  # autodoc has them

html_theme = "furo"
html_title = f"patrac_native {release}"
html_static_path = ["static"]
html_css_files = ["wide.css"]


def with_links_of_the_site(app: Any, name: str, source: list[str]) -> None:
    """Read the pages outside docs/ into project/, and make links between files those between pages of the site."""
    files = {f"project/{page}": file for file, page in PROJECT.items()}
    file = files.get(name, f"docs/{name}.md")
    if name in files:
        source[0] = (ROOT / file).read_text(encoding="utf-8")

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(file).parent / match[2])
        if target in PROJECT:
            target = f"docs/project/{PROJECT[target]}.md"
        if target.startswith("docs/"):
            return f"{match[1]}(/{target.removeprefix('docs/')}{match[3] or ''})"
        # A file beside the site gives its words alone. A link to nothing stays, and is reported.
        return match[1][1:-1] if (ROOT / target).exists() else match[0]

    source[0] = re.sub(r"(\[[^\]\n]+\])\(([^):#\s]+)(#[^)\s]*)?\)", link, source[0])


def without_requests(app: Any, what: str, name: str, obj: object, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn gives its estimators for the routing of metadata."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app: Any) -> None:
    app.connect("source-read", with_links_of_the_site)
    app.connect("autodoc-skip-member", without_requests)
