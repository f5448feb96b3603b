"""``kasctl login`` and ``logout``, by themselves and as kubectl starts them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kas.ctl.cli import cli
from kas.ctl.kept_tokens import KeptTokens, Tokens, cache_folder
from kas.ctl.login import MARGIN, current
from kas.ctl.sign_in import Provider, SignInFailed
from tests.fakes.identity_provider import CLIENT_ID
from tests.fakes.signing_in import Browser, SigningIn, signing_in

#: Follows where the provider sends a browser, and says something as some do.
_BROWSER = """\
import sys, urllib.request
print("Opening in existing browser session.", flush=True)
urllib.request.urlopen(sys.argv[1], timeout=20).read()
"""

_KASCTL = "from kas.ctl import main; main()"

#: The same, and which libraries it needed.
_IMPORTED = """\
import sys
from kas.ctl import main
try:
    main()
finally:
    found = {name.partition(".")[0] for name in sys.modules}
    found &= {"attr", "cryptography", "google", "jwt", "twisted", "yaml"}
    print(*sorted(found), file=sys.stderr)
"""


@pytest.fixture
def there() -> Iterator[SigningIn]:
    """A provider."""
    with signing_in() as provider:
        yield provider


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a person at a screen."""
    program = tmp_path / "browser.py"
    program.write_text(_BROWSER)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "BROWSER": f"{shlex.join([sys.executable, str(program)])} %s",
    }


def _run(
    environ: dict[str, str], *arguments: str, code: str = _KASCTL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
    )


def test_as_programs(there: SigningIn, environ: dict[str, str]) -> None:
    """Signed in by kubectl, kept, renewed, and removed."""
    issuer = there.issuer
    line = ["login", "--issuer", issuer, "--client-id", CLIENT_ID]
    plugin = [*line, "--exec", "--agent", "main"]

    def given(code: str = _KASCTL) -> tuple[str, str]:
        done = _run(environ, *plugin, code=code)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["apiVersion"] == "client.authentication.k8s.io/v1"
        assert answer["kind"] == "ExecCredential"
        ends = time.strptime(
            answer["status"]["expirationTimestamp"], "%Y-%m-%dT%H:%M:%SZ"
        )
        assert time.mktime(ends) > time.mktime(time.gmtime())
        token = answer["status"]["token"]
        assert token.startswith("oidc:main:eyJ")
        assert token not in done.stderr
        return token, done.stderr

    first, said = given()
    assert f"{issuer}/authorize" in said
    assert "Opening in existing browser session." in said
    # What is kept is used without the provider, and with few imports.
    asked = len(there.tokens.asked)
    assert given(_IMPORTED) == (first, "\n")
    assert len(there.tokens.asked) == asked

    # A sign-in by a person; its short token is renewed.
    there.claims = {"iat": int(time.time()) - 570, "exp": int(time.time()) + 30}
    done = _run(environ, *line)
    assert (done.returncode, done.stdout) == (0, "")
    assert "You are signed in as alice until" in done.stderr
    there.claims = {}
    posted = len(there.posted)
    second, said = given()
    assert (second == first, said) == (False, "")
    assert [one["grant_type"] for one in there.posted[posted:]] == ["refresh_token"]

    done = _run(environ, "logout")
    assert (done.returncode, done.stderr) == (0, "The tokens were removed.\n")
    done = _run(environ, "logout")
    assert (done.returncode, done.stderr) == (0, "No tokens are cached.\n")
    # There is no place to show a URL: it does not wait for a person.
    del environ["BROWSER"]
    done = _run(environ, *plugin)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"then retry: kasctl login --issuer {issuer}" in done.stderr


def test_device(there: SigningIn, environ: dict[str, str]) -> None:
    """The code is shown, and the provider asked until it was entered."""
    there.device["interval"] = 1
    line = ["--issuer", there.issuer, "--client-id", CLIENT_ID, "--scope", "email"]
    done = _run(environ, "login", *line, "--device")
    assert done.returncode == 0, done.stderr
    assert "ABCD-EFGH" in done.stderr
    folder = cache_folder(environ)
    assert KeptTokens.of(folder, there.issuer, CLIENT_ID, ("email",)).read()
    for scopes, says in (
        ([], "No tokens are cached."),
        (["--scope", "email"], "The tokens were removed."),
    ):
        done = _run(environ, "logout", *line[:4], *scopes)
        assert (done.returncode, done.stderr) == (0, f"{says}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["login", "--client-id", "x"], "--issuer"),
        (
            ["login", "--issuer", "https://x", "--client-id", "x", "--agent", "a"],
            "exec",
        ),
        (["logout", "--issuer", "https://x"], "require each other"),
        (["logout", "--scope", "email"], "require each other"),
    ],
)
def test_mistakes(arguments: list[str], says: str) -> None:
    """They are said."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_problem(environ: dict[str, str]) -> None:
    """One line, and no traceback."""
    line = ("--issuer", "http://id.example.com", "--client-id", "x")
    result = CliRunner().invoke(cli, ["login", *line], env=environ)
    assert result.exit_code == 1
    assert (
        result.stderr
        == "kasctl: the issuer must be an https:// URL, not http://id.example.com\n"
    )


class _Person:
    """
    A person whose tokens are kept.

    :ivar signed_in: how often a browser was needed.
    """

    def __init__(self, there: SigningIn, folder: Path) -> None:
        self.there = there
        self.kept = KeptTokens.of(folder, there.issuer, CLIENT_ID, ())
        self.signed_in = 0
        self.now = 0.0
        self.kept.write(self.sign_in(self.provider()))
        self.expires_at = self.tokens().expires_at

    def provider(self) -> Provider:
        return Provider(self.there.issuer, CLIENT_ID, (), None, lambda _: None)

    def sign_in(self, provider: Provider) -> Tokens:
        self.signed_in += 1
        browser = Browser()
        found = provider.by_browser(0, browser.open)
        browser.end()
        return found

    def tokens(self) -> Tokens:
        found = self.kept.read()
        assert found is not None
        return found

    def current(self) -> Tokens:
        return current(self.kept, self.provider, self.sign_in, lambda: self.now)


@pytest.fixture
def person(there: SigningIn, tmp_path: Path) -> _Person:
    """Signed in."""
    return _Person(there, tmp_path / "cache")


def test_renewed_once(person: _Person) -> None:
    """However many commands begin at the same time."""
    person.there.posted.clear()
    person.now = person.expires_at - MARGIN
    found: list[Tokens] = []
    commands = [
        threading.Thread(target=lambda: found.append(person.current()))
        for _ in range(8)
    ]
    # The renewed token would be as old as this one by the clock of the test.
    person.there.claims = {"exp": int(person.expires_at) + 600}
    for one in commands:
        one.start()
    for one in commands:
        one.join()
    assert len(found) == 8
    assert set(found) == {person.tokens()}
    assert [one["grant_type"] for one in person.there.posted] == ["refresh_token"]
    assert person.signed_in == 1


def test_tokens_of_less_than_a_minute(person: _Person) -> None:
    """Each serves for three quarters of its time: not every call renews it."""
    issued = int(time.time())
    person.now = person.expires_at
    person.there.claims = {"iat": issued, "exp": issued + 40}
    first = person.current()
    person.there.posted.clear()
    person.now = issued + 29
    assert person.current() == first
    assert person.there.posted == []
    person.now = issued + 31
    assert person.current() != first


def test_still_good(person: _Person) -> None:
    """The provider is not asked before `MARGIN`."""
    before = person.tokens()
    person.there.posted.clear()
    person.now = person.expires_at - MARGIN - 1
    assert person.current() == before
    assert person.there.posted == []


def test_revoked(person: _Person) -> None:
    """The person signs in again."""
    person.now = person.expires_at
    person.there.revoke()
    found = person.current()
    assert person.signed_in == 2
    assert person.tokens() == found


def test_provider_away(person: _Person) -> None:
    """The last seconds of a token are used; after them the provider is needed."""
    before = person.tokens()
    person.there.answers = [(503, {}), (503, {})]
    person.now = person.expires_at - 10
    assert person.current() == before
    person.now = person.expires_at
    with pytest.raises(SignInFailed, match="responded with 503"):
        person.current()
    assert person.signed_in == 1
