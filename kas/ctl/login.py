"""
``kasctl login`` and ``logout``: tokens of an identity provider, for kubectl.

kubectl starts ``kasctl login --exec`` for each of its commands, so the libraries for a
sign-in are imported only when a user signs in.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kas.ctl.kept_tokens import KeptTokens, Tokens, all_kept, cache_folder

if TYPE_CHECKING:
    from kas.ctl.sign_in import Provider

__all__ = ["declare", "login"]

#: Seconds before its expiry at which an ID token is renewed, because a command may take
#: this long.
MARGIN = 60.0

#: Minimum remaining lifetime in seconds of a token that is used although it cannot be
#: renewed now.
_LAST = 5.0

_API_VERSION = "client.authentication.k8s.io/v1"


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(login)
    group.add_command(_logout)


@click.command("login", short_help="Sign in with an identity provider, for kubectl.")
@click.option(
    "--issuer", metavar="URL", required=True, help="The same as oidc.issuer of kas."
)
@click.option("--client-id", required=True, help="The same as oidc.client_id of kas.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    help="Also request this scope; repeatable, such as email or groups.",
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="CA of the identity provider's certificate, in addition to the system's.",
)
@click.option(
    "--device",
    is_flag=True,
    help="Sign in with a browser on another machine, using a code.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of 127.0.0.1 for the browser's redirect  [default: a free one]",
)
@click.option(
    "--no-browser", is_flag=True, help="Print the URL instead of opening a browser."
)
@click.option(
    "--exec",
    "for_kubectl",
    is_flag=True,
    help=(
        "Print the output of a credential plugin for kubectl; sign in only if the "
        "cached tokens cannot be used or renewed."
    ),
)
@click.option(
    "--agent",
    help="With --exec: put the agent into the credential, not only into the path.",
)
def login(
    issuer: str,
    client_id: str,
    scopes: tuple[str, ...],
    ca_file: Path | None,
    device: bool,
    port: int,
    no_browser: bool,
    for_kubectl: bool,
    agent: str | None,
) -> None:
    """
    Sign in with an identity provider, for kubectl.

    The tokens are cached in $XDG_CACHE_HOME/txkas or ~/.cache/txkas, and renewed there.
    """
    if agent is not None and not for_kubectl:
        raise click.UsageError("--agent needs --exec")
    kept = KeptTokens.of(cache_folder(os.environ), issuer, client_id, scopes)

    def provider() -> Provider:
        from kas.ctl.sign_in import Provider

        return Provider(issuer, client_id, scopes, ca_file, _say)

    def sign_in(at: Provider) -> Tokens:
        browser = not (no_browser or device) and _has_browser(os.environ)
        if for_kubectl and not browser and not _has_terminal():
            _fail_without_terminal(issuer, client_id)
        with _nothing_printed():
            if device:
                return at.by_device()
            return at.by_browser(port, _open_browser if browser else None)

    with _problems_shown():
        if not for_kubectl:
            from kas.ctl.sign_in import person_of

            with kept.locked(_waits):
                tokens = sign_in(provider())
                kept.write(tokens)
            who, end = person_of(tokens), _shown(tokens.expires_at)
            _say(f"You are signed in as {who} until {end}.")
            if tokens.refresh_token is not None:
                _say("The tokens are cached, and renewed while the provider allows it.")
            return
        tokens = current(kept, provider, sign_in, time.time)
        click.echo(json.dumps(_credential(tokens, agent)))


@click.command("logout", short_help="Remove the cached tokens of kasctl login.")
@click.option("--issuer", metavar="URL", help="Only tokens of this identity provider.")
@click.option("--client-id", help="With --issuer: only tokens of this client.")
@click.option("--scope", "scopes", multiple=True, help="The same scopes as for login.")
def _logout(issuer: str | None, client_id: str | None, scopes: tuple[str, ...]) -> None:
    """
    Remove the cached tokens of kasctl login.

    Without options, remove all of them. An ID token that a program has received stays
    valid until it expires.
    """
    if (issuer is None) != (client_id is None) or (scopes and issuer is None):
        raise click.UsageError(
            "--issuer and --client-id require each other, and --scope needs both"
        )
    folder = cache_folder(os.environ)
    if issuer is not None and client_id is not None:
        found = [KeptTokens.of(folder, issuer, client_id, scopes)]
    else:
        found = all_kept(folder)
    removed = 0
    with _problems_shown():
        for one in found:
            # Take the lock: otherwise, a renewal in progress would store the tokens
            # again.
            with one.locked(_waits):
                removed += one.remove()
    _say("The tokens were removed." if removed else "No tokens are cached.")


def current(
    kept: KeptTokens,
    provider: Callable[[], Provider],
    sign_in: Callable[[Provider], Tokens],
    now: Callable[[], float],
) -> Tokens:
    """
    Return usable tokens: cached tokens, renewed tokens, or tokens from a new sign-in.

    Of several processes, one renews the tokens, and the others use its result.
    """
    found = kept.read()
    if found is not None and _lasts(found, now):
        return found
    with kept.locked(_waits):
        found = kept.read()
        if found is not None and _lasts(found, now):
            return found
        at = provider()
        tokens = None if found is None else _renewed(at, found, now)
        if tokens is None:
            tokens = sign_in(at)
        if tokens is not found:
            kept.write(tokens)
        return tokens


def _lasts(tokens: Tokens, now: Callable[[], float]) -> bool:
    """
    Return whether the tokens stay valid for a while.

    Tokens with a lifetime of minutes need to be valid only for a quarter of it;
    otherwise each call would renew the tokens.
    """
    left = tokens.expires_at - now()
    return left > MARGIN or left > max(_LAST, tokens.lifetime / 4)


def _renewed(at: Provider, found: Tokens, now: Callable[[], float]) -> Tokens | None:
    from kas.ctl.sign_in import Unreachable

    try:
        return at.renew(found)
    except Unreachable:
        if found.expires_at - now() > _LAST:
            return found
        raise


def _credential(tokens: Tokens, agent: str | None) -> Mapping[str, object]:
    named = f"oidc:{agent}:{tokens.id_token}"
    return {
        "apiVersion": _API_VERSION,
        "kind": "ExecCredential",
        "status": {
            "token": tokens.id_token if agent is None else named,
            "expirationTimestamp": _shown(tokens.expires_at),
        },
    }


def _shown(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "9999-12-31T23:59:59Z"


def _say(text: str) -> None:
    """Print a line to standard error, because kubectl reads standard output."""
    click.echo(text, err=True)


def _waits() -> None:
    _say("Another kasctl is renewing the tokens or signing in; waiting for it.")


def _has_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _has_browser(environ: Mapping[str, str]) -> bool:
    """
    Return whether a graphical browser exists, because a browser in the terminal would
    disturb kubectl.
    """
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(environ.get(name) for name in named)


def _open_browser(url: str) -> None:
    import threading
    import webbrowser

    # Open the browser in a thread, because some browsers return only when the user
    # closes them.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """
    Redirect a browser's output to standard error, because kubectl reads standard
    output.
    """
    if sys.stdout is None:
        yield
        return
    sys.stdout.flush()
    before = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


def _fail_without_terminal(issuer: str, client_id: str) -> NoReturn:
    from kas.ctl.sign_in import SignInFailed

    raise SignInFailed(
        "you are not signed in, and this program has neither a browser nor a "
        "terminal to sign in with.  Sign in once in a terminal, and then retry: "
        f"kasctl login --issuer {issuer} --client-id {client_id} (with --scope and "
        "--device as in your kubeconfig)"
    )


@contextmanager
def _problems_shown() -> Iterator[None]:
    """Turn expected exceptions into one line and exit status 1."""
    try:
        yield
    except Exception as error:
        from tunnel.errors import TunnelError
        from tunnel.toolkit.files import in_words

        if not isinstance(error, TunnelError | OSError):
            raise
        _say(f"kasctl: {in_words(error)}")
        raise SystemExit(1) from None
