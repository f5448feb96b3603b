"""
Files with tokens, which are either complete or missing, and which only their owner can
read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tunnel.errors import ConfigurationError
from tunnel.toolkit.files import Replacement, owner_of

__all__ = ["secret_file"]


@contextmanager
def secret_file(path: Path) -> Iterator[Callable[[str], None]]:
    """
    Open a file of mode 0600 before a token is created, because the token cannot be
    created again.

    Yields a function that writes a text to a temporary file on disk; *path* is created
    or replaced when the block ends without an error.

    :raises ConfigurationError: if the file cannot be written, or belongs to another
        user, who could read the token.
    """
    _check_owner(path)
    with ExitStack() as stack:
        try:
            target = stack.enter_context(Replacement(path))
        except OSError as error:
            message = f"cannot write {path} ({error.strerror}); no token was made"
            raise ConfigurationError([message]) from None

        def write(text: str) -> None:
            try:
                target.write(text.encode() + b"\n")
            except OSError as error:
                raise ConfigurationError(
                    [f"cannot write {path} ({error.strerror}); no token was made"]
                ) from None

        yield write
        target.commit()


def _check_owner(path: Path) -> None:
    """Refuse a file or a link of another user."""
    try:
        found = path.lstat()
    except OSError:
        return
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            [
                f"{path} belongs to {owner_of(found)}, who could read the token; run "
                "this as that user, or pass another file; no token was made"
            ]
        )
