"""Links that leave docs/ work in the repository. The site stands alone: figures come along, other targets are named.

A figure that is SVG has a second file for dark pages, made from it, and a click opens it alone, where a phone can zoom.
The foot of every page has the version.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from flipout._drawing import DARK

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
IMAGES = {".svg", ".png"}
# What other colours become on a dark page: white, matplotlib's black and grid, and those of images/signs.svg.
OTHERS = {
    "#ffffff": "#1e2129",
    "#000000": "#e6e6e6",
    "#333333": "#d0d0d0",
    "#b0b0b0": "#4c515e",
    "#1b1b1b": "#e6e6e6",
    "#4a4a4a": "#b8b8b8",
    "#5c6670": "#8a94a0",
    "#d6e6f7": "#1d4166",
    "#fbdcbc": "#6b4318",
}
COLOUR = re.compile("|".join([*DARK, *OTHERS]))


def on_config(config: Any) -> Any:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "flipout" / "__init__.py").read_text(), re.MULTILINE)
    if version is None:
        raise ValueError("flipout/__init__.py has no line __version__ = ...")
    config.copyright = f"flipout {version[1]}, Apache-2.0"
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    here = posixpath.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", here, link[3]))
        is_image = bool(link[1]) and Path(target).suffix in IMAGES
        if target.startswith("docs/"):
            return figure(link[2], target, target.removeprefix("docs/")) if is_image else link[0]
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {target}, which is not there")
        if not is_image:
            return link[2] if target in link[2] else f"{link[2]} (`{target}`)"
        uri = f"figures/{target.replace('/figures/', '/')}"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
        return figure(link[2], target, uri)

    def figure(text: str, target: str, uri: str) -> str:
        light = posixpath.relpath(uri, here or ".")
        if not target.endswith(".svg"):
            return f"![{text}]({light})"
        dark = f"{uri.removesuffix('.svg')}.dark.svg"
        if files.get_file_from_path(dark) is None:
            source = files.get_file_from_path(uri)  # a figure of a notebook is in no folder
            content = darkened((ROOT / target).read_text(encoding="utf-8") if source is None else source.content_string)
            files.append(File.generated(config, dark, content=content))
        return f"[![{text}]({light}#only-light)![{text}]({posixpath.relpath(dark, here or '.')}#only-dark)]({light})"

    return LINK.sub(replaced, markdown)


def darkened(svg: str) -> str:
    """Return a figure for dark pages. Text without a colour takes that of the whole picture."""
    recoloured = COLOUR.sub(lambda colour: (DARK | OTHERS)[colour[0]], svg)
    return recoloured.replace("<svg ", f'<svg fill="{OTHERS["#000000"]}" ', 1)
