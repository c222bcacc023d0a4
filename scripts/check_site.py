#!/usr/bin/env python3
"""Checks the site that `make docs` makes: it asks no other host for anything, its search finds the words that people look for, every page
is there, every picture has an alternative text, and no Markdown is left in the text: check_site.py SITE
"""
import html
import json
import pathlib
import re
import sys

from check_pages import TERMS

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Elements that a browser loads by itself. A link to click on (a) may lead anywhere.
LOADED = re.compile(r"""<(?:script|link|img|iframe|source|object|embed|video|audio|use)\b[^>]*?\b(?:src|href|data|srcset)=["']?((?:https?:)?//[^"'\s>]+)""")
STYLED = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
LEFT = ("```", "](", "**", "\\|", " | ")


def foreign(site):
    """Addresses of other hosts that pages and styles load."""
    for path in sorted(site.rglob("*")):
        pattern = {".html": LOADED, ".css": STYLED}.get(path.suffix)
        if pattern:
            yield from (f"{path.relative_to(site)}: loads {address}" for address in pattern.findall(path.read_text()))


def unfound(site):
    """Words that are in no text of the search's index."""
    texts = [f"{one['title']} {one['text']}".lower() for one in json.loads((site / "search/search_index.json").read_text())["docs"]]
    return [f"search: finds no '{term}'" for term in TERMS if not any(term.lower() in text for text in texts)]


def missing(site, docs):
    """Pages of docs/ that the site lacks."""
    for page in sorted(docs.rglob("*.md")):
        name = page.relative_to(docs)
        made = name.with_name("index.html") if name.name == "README.md" else name.with_suffix(".html")
        if not (site / made).exists():
            yield f"docs/{name}: the site has no {made}"


def article(path):
    text = path.read_text()
    return text[text.find("<article"):text.find("</article>")]


def badly_shown(site):
    """Pictures without an alternative text, and Markdown that was not understood."""
    for path in sorted(site.rglob("*.html")):
        body, name = article(path), path.relative_to(site)
        yield from (f"{name}: a picture has no alternative text: {picture}" for picture in re.findall(r"<img\b[^>]*>", body)
                    if not re.search(r'\balt="[^"]+"', picture))
        plain = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<(pre|code)\b.*?</\1>", "", body, flags=re.S)))
        yield from (f"{name}: shows '{plain[max(0, plain.find(left) - 30):plain.find(left) + 20].strip()}'" for left in LEFT if left in plain)


if __name__ == "__main__":
    built = pathlib.Path(sys.argv[1])
    found = [*foreign(built), *unfound(built), *missing(built, ROOT / "docs"), *badly_shown(built)]
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
