"""Links that leave docs/ work in the repository. The site stands alone: figures come along, other targets are named."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
IMAGES = {".svg", ".png"}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    here = posixpath.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", here, link[3]))
        if target.startswith("docs/"):
            return link[0]
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {target}, which is not there")
        if not link[1] or Path(target).suffix not in IMAGES:
            return link[2] if target in link[2] else f"{link[2]} (`{target}`)"
        uri = f"figures/{target.replace('/figures/', '/')}"
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
        return f"![{link[2]}]({posixpath.relpath(uri, here or '.')})"

    return LINK.sub(replaced, markdown)
