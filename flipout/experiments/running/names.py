"""Names that programs use as keys."""

import re


def slug(text: str) -> str:
    """Return a text as part of an id: lower case, without commas, a hyphen for each run of other signs.

    Letters, digits, dots, underscores and brackets stay, so that names of layers stay whole.
    """
    return re.sub(r"[^\w.\[\]]+", "-", text.replace(",", "").lower()).strip("-")
