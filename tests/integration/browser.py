"""
A browser for pages with forms: it signs in as alice, and agrees to everything.

A program, too: ``python browser.py URL``.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

__all__ = ["new_browser", "visit"]

#: What is typed into fields.
_TYPED = {"login": "alice", "password": "any"}

#: Forms of one sign-in: a code, its confirmation, who it is, what they allow.
_MAX_FORMS = 8


class _Form(HTMLParser):
    """The first form of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._ended = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = found.get("action") or ""
        elif tag == "input" and self.action is not None and not self._ended:
            name = found.get("name") or ""
            self.fields[name] = _TYPED.get(name, found.get("value") or "")
        elif tag == "button" and "autofocus" in found and found.get("name"):
            # It may stand behind its form.
            self.fields[found["name"] or ""] = found.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        self._ended = self._ended or (tag == "form" and self.action is not None)


def new_browser() -> OpenerDirector:
    """One without cookies."""
    return build_opener(HTTPCookieProcessor())


def visit(url: str, opener: OpenerDirector | None = None) -> str:
    """Open *url*, and submit each form that comes; the page after the last one."""
    opener = opener or new_browser()
    data = None
    page = ""
    for _ in range(_MAX_FORMS):
        with opener.open(url, data, timeout=30) as answer:
            page = str(answer.read(), "utf-8")
            url = answer.url
        form = _Form(page)
        if form.action is None:
            return page
        url = urljoin(url, form.action)
        data = urlencode(form.fields).encode()
    raise AssertionError(f"there are forms without end:\n{page}")


if __name__ == "__main__":
    print(visit(sys.argv[1]))
