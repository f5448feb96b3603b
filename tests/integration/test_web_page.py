"""The page of kas in a real browser, over a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.integration import chromium
from tests.integration.cluster import ControlPlane
from tests.integration.processes import PATIENCE
from tests.integration.test_gitops_drift import deployment
from tests.integration.test_live import Live, live

__all__ = ["live"]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium.found()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        yield found
        found.close()


class PageStand:
    """
    One browser with the page of one kas.

    :ivar faults: errors of scripts, and reports about the policy of the page.
    """

    def __init__(self, live: Live, browser: Browser) -> None:
        self.live = live
        self.origin = f"https://127.0.0.1:{live.port}"
        self.faults: list[str] = []
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    def open(self, path: str = "/", **options: Any) -> Page:
        """Open a path in a browser without cookies."""
        context = self._browser.new_context(ignore_https_errors=True, **options)
        context.set_default_timeout(1000 * PATIENCE)
        self._contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._heard)
        page.goto(self.origin + path)
        return page

    def sign_in(self, page: Page, token: str) -> None:
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "401" not in message.text:
            self.faults.append(message.text)


@pytest.fixture
def stand(live: Live, browser: Browser) -> Iterator[PageStand]:
    stand = PageStand(live, browser)
    yield stand
    stand.close()
    assert stand.faults == []


def token_of(live: Live, user: str, cluster: ControlPlane) -> str:
    """Add a user of kas who may do everything in the cluster."""
    live.kas.add_user(user, "--as", user)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": live.namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "User", "name": user}],
    }
    cluster.call(
        "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding
    )
    return live.kas.bearer(user)


def test_from_sign_in_to_sign_out(stand: PageStand) -> None:
    live = stand.live
    token = token_of(live, "page-user", live.cluster)
    page = stand.open("/")
    expect(page.get_by_role("heading", name="Sign in to kas")).to_be_visible()
    stand.sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("token")
    stand.sign_in(page, token)
    page.wait_for_url("**/ui/**")
    expect(page.get_by_role("link", name="main")).to_be_visible()
    page.screenshot(path="/tmp/page_fleet.png", full_page=True)
    path = f"/apis/apps/v1/namespaces/{live.namespace}/deployments"
    live.cluster.call("POST", path, deployment(live.namespace))
    page.goto(f"{stand.origin}/ui/clusters/main?tab=workloads")
    page.wait_for_timeout(3000)
    page.screenshot(path="/tmp/page_cluster.png", full_page=True)
