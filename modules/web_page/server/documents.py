"""
The HTML documents.

Everything that is not markup of this file is text, which the templates escape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from twisted.web.template import Tag, flatten, tags

__all__ = [
    "Frame",
    "ProviderLink",
    "error_document",
    "page_document",
    "sign_in_document",
]

THEMES: Final = ("system", "light", "dark")


@attrs.frozen
class Frame:
    """
    What all documents share.

    :ivar theme: one of `THEMES`.
    :ivar script: URL of the script.
    :ivar style: URL of the style sheet.
    """

    theme: str
    script: str
    style: str


@attrs.frozen
class ProviderLink:
    """Way to sign in: a link and its text."""

    url: str
    title: str


def page_document(frame: Frame, boot: Mapping[str, Any]) -> bytes:
    """
    Return the document of all pages, which the script fills.

    :param boot: data for the script.
    """
    text = json.dumps(boot, separators=(",", ":"))
    # The browser does not decode entities in a script, so leave nothing to escape.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _document(
        frame,
        "kas",
        tags.div(
            tags.noscript(
                tags.p("This page needs JavaScript.  kasctl shows the same in a shell.")
            ),
            id="app",
        ),
        tags.script(text, type="application/json", id="boot"),
        script=True,
    )


def sign_in_document(
    frame: Frame,
    action: str,
    after: str,
    providers: Sequence[ProviderLink],
    error: str = "",
) -> bytes:
    """
    Return the form for sign-in.

    :param action: URL that the form is sent to.
    :param after: path of the page to open afterwards.
    :param error: reason why the last attempt failed; empty otherwise.
    """
    parts: list[Any] = [tags.h1("Sign in to kas")]
    if error:
        parts.append(
            tags.p(error, class_="notice notice--error", role="alert", id="error")
        )
    parts += [
        tags.a(
            f"Sign in with {one.title}", href=one.url, class_="button button--primary"
        )
        for one in providers
    ]
    if providers:
        parts.append(tags.p("or with a token", class_="sign-in__or"))
    parts.append(
        tags.form(
            tags.input(type="hidden", name="next", value=after),
            tags.label("Token", for_="token"),
            tags.input(
                type="password",
                name="token",
                id="token",
                required="required",
                autocomplete="current-password",
                spellcheck="false",
                autofocus="autofocus",
                **{"aria-describedby": "error hint" if error else "hint"},
            ),
            tags.p(
                "Your kubeconfig contains the token: ",
                tags.code("kubectl config view --minify --raw"),
                id="hint",
                class_="sign-in__hint",
            ),
            tags.button(
                "Sign in",
                type="submit",
                class_="button" if providers else "button button--primary",
            ),
            method="post",
            action=action,
        )
    )
    body = _main(tags.div(*parts, class_="sign-in__card"))
    return _document(frame, "Sign in to kas", body)


def error_document(frame: Frame, title: str, text: str, link: ProviderLink) -> bytes:
    """Return a page that says why a request failed, with a way on."""
    body = _main(
        tags.div(
            tags.h1(title),
            tags.p(text, class_="notice notice--error"),
            tags.a(link.title, href=link.url, class_="button"),
            class_="sign-in__card",
        )
    )
    return _document(frame, title, body)


def _main(card: Tag) -> Tag:
    # The element is missing in `tags`.
    return Tag("main")(card, class_="sign-in")


def _document(frame: Frame, title: str, *body: Tag, script: bool = False) -> bytes:
    head = [
        tags.meta(charset="utf-8"),
        tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
        tags.title(title),
        tags.link(rel="stylesheet", href=frame.style),
        # An own icon, so that browsers do not ask for /favicon.ico.
        tags.link(rel="icon", href=_ICON),
    ]
    if script:
        head.append(tags.script(type="module", src=frame.script))
    document = tags.html(
        tags.head(*head), tags.body(*body), lang="en", **{"data-theme": frame.theme}
    )
    parts: list[bytes] = [b"<!doctype html>\n"]
    # Nothing in the documents waits, so they are complete at once.
    flatten(None, document, parts.append)
    return b"".join(parts)


#: A hub with four spokes.
_ICON: Final = (
    "data:image/svg+xml,"
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M3 3l10 10M13 3L3 13' stroke='%232f6fdb' stroke-width='1.5'/%3E"
    "%3Cg fill='%232f6fdb'%3E%3Ccircle cx='8' cy='8' r='3'/%3E"
    "%3Ccircle cx='3' cy='3' r='2'/%3E%3Ccircle cx='13' cy='3' r='2'/%3E"
    "%3Ccircle cx='3' cy='13' r='2'/%3E%3Ccircle cx='13' cy='13' r='2'/%3E"
    "%3C/g%3E%3C/svg%3E"
)
