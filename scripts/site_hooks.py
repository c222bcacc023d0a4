"""What mkdocs does differently with the pages of docs/, which are written to be read as files of the repository too.

The navigation is the order of docs/README.md. Links out of docs/ become the path of the file. Fences with words for tests
(`sh test`) are plain ones.
"""
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)


def listed(page):
    """(title, path below docs/) of the links of each item of a list, by heading."""
    found, heading = {}, ""
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        item = re.match(r"(?:-|\d+\.) \[([^\]]*)\]\(([^)#\s]+\.md)\)", line)
        if item:
            path = os.path.normpath(os.path.join(os.path.dirname(page), item[2]))
            found.setdefault(heading, []).append({re.sub("`", "", item[1]): path})
    return found


def on_config(config):
    nav = [{"Start": "README.md"}]
    for heading, pages in listed("README.md").items():
        for page in pages:
            title, path = next(iter(page.items()))
            if path == "decisions/README.md":
                page[title] = [path, *listed(path)["Decisions"]]
        nav.append({heading: pages})
    config["nav"] = nav
    return config


def outward(link, page):
    """A link of a page, or the path of a file outside docs/ in its place."""
    picture, text, target, anchor = link.groups()
    if re.match(r"[a-z]+:", target):
        return link[0]
    file = os.path.normpath(os.path.join("docs", os.path.dirname(page), target))
    if file.startswith("docs/"):
        return link[0]
    if not (ROOT / file).exists():
        raise SystemExit(f"error: docs/{page}: links to {file}, which is not there")
    return f"`{file}`" if text.strip("`") in (file, os.path.basename(file)) else f"{text} (`{file}`)"


def prose(text, page):
    text = LINK.sub(lambda link: outward(link, page), text)
    lines = []
    for line in text.split("\n"):
        if line.startswith("|"):  # a bar in code is no end of a cell here
            line = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
        if re.match(r" {2,3}\S", line):  # what belongs to an item of a list stands four columns in
            line = "  " + line
        elif re.match(r" {6}\S", line) and lines and not lines[-1].strip():
            line = "  " + line
        lines.append(line)
    return "\n".join(lines)


def on_page_markdown(markdown, page, **_):
    parts = FENCED.split(markdown)
    return "".join(re.sub(r"^( *```\w+) [\w ]+$", r"\1", part, flags=re.M) if part.lstrip().startswith("```") else prose(part, page.file.src_uri)
                   for part in parts)
