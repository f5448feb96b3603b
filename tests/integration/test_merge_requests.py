"""GitLab calls kas for a merge request, and finds a comment there: real processes."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.processes import ROOT, Process, eventually
from tests.integration.stack import Kas
from tests.integration.test_gitops import Stand, config_map, stand
from tests.modules.gitops.server.test_merge_requests import event
from tools.ports import free_port

__all__ = ["stand"]

SECRET, TOKEN = "the-secret-of-webhooks", "glpat-0123456789abcdef"


def http(method: str, url: str, body: Any = None, **fields: str) -> tuple[int, Any]:
    """Status and JSON, or text, of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    request = urllib.request.Request(url, data, headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        text = answer.read().decode()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[str]:
    """The URL of its API."""
    (tmp_path / "token").write_text(TOKEN)
    process = Process(
        "gitlab",
        [sys.executable, "-m", "tests.fakes.notes", tmp_path / "token"],
        tmp_path / "gitlab.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    port = process.wait_for(r"(?m)^(\d+)$")[1]
    yield f"http://127.0.0.1:{port}"
    process.kill()


@pytest.fixture
def web(lone_kas: Kas) -> int:
    """The port of kas' pages."""
    port = free_port()
    lone_kas.settings = (
        f'web: {{listen: {{address: "127.0.0.1:{port}", '
        "development_certificate: false}}\n"
    )
    return port


@pytest.fixture
def gitops_settings(tmp_path: Path, gitlab: str, web: int) -> str:
    """With GitLab's merge requests."""
    (tmp_path / "secret").write_text(SECRET)
    return (
        f", merge_requests: {{gitlab_url: '{gitlab}', "
        f"webhook_secret_file: '{tmp_path}/secret', token_file: '{tmp_path}/token'}}"
    )


def test_a_merge_request(stand: Stand, gitlab: str, web: int) -> None:
    """Opened, and changed: one comment follows it, and the cluster does not."""
    space = stand.namespace
    first = stand.commit(*(config_map(f"m{n}", space, value="old") for n in range(6)))
    stand.settled(first)
    notes = f"{gitlab}/api/v4/projects/5/merge_requests/7/notes"

    def push(value: str, **changed: Any) -> str:
        new = [config_map(f"m{n}", space, value=value) for n in range(1, 200)]
        proposed = {"apps/all.yaml": yaml.safe_dump_all(new)}
        commit = stand.origin.commit(proposed, branch="next")
        # As GitLab has it for each merge request.
        stand.origin.run("update-ref", "refs/merge-requests/7/head", commit)
        said = event(commit, **changed)
        said["project"]["path_with_namespace"] = stand.repository
        http("PUT", f"{gitlab}/control", said)
        status, _ = http(
            "POST",
            f"http://127.0.0.1:{web}/gitops/merge-requests",
            said,
            X_Gitlab_Token=SECRET,
            X_Gitlab_Event="Merge Request Hook",
        )
        assert status == 202
        return commit

    def comment(commit: str) -> str | None:
        _, found = http("GET", notes, Private_Token=TOKEN)
        if not found or commit[:12] not in found[0]["body"]:
            return None
        assert len(found) == 1
        return str(found[0]["body"])

    opened = push("new")
    said = eventually(lambda: comment(opened), 60, "the comment")
    assert (
        f"`main`, project `{stand.repository}`: 5 change, 194 create, 1 prune" in said
    )
    assert f"~ ConfigMap {space}/m1  change  apps/all.yaml:1" in said
    assert '/data/value: "old" -> "new"' in said
    changed = push("newer", action="update", oldrev=opened)
    said = eventually(lambda: comment(changed), 60, "the comment, changed")
    assert '/data/value: "old" -> "newer"' in said
    found = stand.config_map("m1")
    assert found is not None
    assert found["data"] == {"value": "old"}
    assert stand.config_map("m9") is None
