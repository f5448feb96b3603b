"""The page of kas in a real browser, over a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Dialog,
    Page,
    expect,
    sync_playwright,
)

from tests.integration import chromium, node
from tests.integration.cluster import ControlPlane
from tests.integration.processes import PATIENCE
from tests.integration.test_gitops_drift import deployment
from tests.integration.test_live import Live, live

__all__ = ["live"]

BROWSER = Path(__file__).parents[2] / "modules" / "web_page" / "browser"

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium.found()
    expect.set_options(timeout=1000 * PATIENCE)
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

    def check(self, page: Page, axe: str) -> None:
        """Check a page with axe."""
        page.evaluate(axe)
        found = page.evaluate(
            """() => axe.run(document, {
                runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
                rules: {"target-size": {enabled: true}},
            })"""
        )
        assert found["passes"]
        assert [
            (one["id"], [node["html"] for node in one["nodes"]])
            for one in found["violations"]
        ] == [], page.url

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


def add_web(stand: PageStand, **change: Any) -> None:
    """Create or change a Deployment whose pods find no node."""
    live = stand.live
    path = f"/apis/apps/v1/namespaces/{live.namespace}/deployments"
    wanted = deployment(live.namespace)
    wanted["spec"] |= change
    method, path = ("PUT", f"{path}/web") if change else ("POST", path)
    live.cluster.call(method, path, wanted)


def test_from_sign_in_to_sign_out(stand: PageStand) -> None:
    """A wrong token, a right one, changes without a click, and the end."""
    live = stand.live
    token = token_of(live, "page-user", live.cluster)
    page = stand.open("/")
    expect(page.get_by_role("heading", name="Sign in to kas")).to_be_visible()
    stand.sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("the token is not valid")
    stand.sign_in(page, token)
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    kept = {one["name"]: one for one in page.context.cookies()}["__Host-kas"]
    assert kept["httpOnly"] and kept["secure"] and kept["sameSite"] == "Lax"
    page.get_by_role("link", name="main").first.click()
    page.wait_for_url("**/ui/clusters/main*")
    page.get_by_role("link", name="Workloads").first.click()
    add_web(stand)
    row = page.get_by_role("row").filter(has_text=live.namespace)
    expect(row.first).to_contain_text("web")
    expect(row.first).to_contain_text("0/1")
    add_web(stand, replicas=3)
    expect(row.first).to_contain_text("0/3")
    page.goto(f"{stand.origin}/ui/problems")
    expect(page.get_by_text("web").first).to_be_visible()

    # The session ends at kas, and the page of another tab notices.
    other = page.context.new_page()
    other.goto(f"{stand.origin}/ui/fleet")
    expect(other.get_by_role("heading", name="Fleet")).to_be_visible()
    (session,) = live.kas.ctl_json("session", "list")
    assert session["owner"] == "user:page-user"
    assert "ended 1 session" in live.kas.ctl("session", "end", session["id"])
    for one in (page, other):
        expect(one.get_by_role("link", name="Sign in")).to_be_visible()
    page.goto(f"{stand.origin}/ui/problems")
    expect(page.get_by_role("heading", name="Sign in to kas")).to_be_visible()
    stand.sign_in(page, token)
    page.wait_for_url("**/ui/problems")


#: Pages for which the checks of accessibility run.
PAGES = ("fleet", "clusters/main", "problems", "events", "applications")


#: Themes and widths of these checks.
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1280, 320)


def test_accessible(stand: PageStand) -> None:
    """No rule of axe for WCAG 2.2 AA is violated, in each theme, wide and narrow."""
    libraries = node.installed(BROWSER, "axe-core")
    axe = (libraries / "node_modules" / "axe-core" / "axe.min.js").read_text()
    token = token_of(stand.live, "page-axe", stand.live.cluster)
    add_web(stand)
    page = stand.open("/")
    stand.check(page, axe)
    stand.sign_in(page, token)
    for width, path in product(WIDTHS, PAGES):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{stand.origin}/ui/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for theme in THEMES:
            # Otherwise, colours would still change while they are checked.
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            stand.check(page, axe)
        too_wide = page.evaluate(
            "document.documentElement.scrollWidth > window.innerWidth"
        )
        assert not too_wide, (path, width)


def test_names_of_clusters_are_text(stand: PageStand) -> None:
    """Markup in messages and annotations neither runs nor changes the page."""
    live = stand.live
    token = token_of(live, "page-text", live.cluster)
    markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    event = {
        "metadata": {"name": "markup", "namespace": live.namespace},
        "involvedObject": {
            "kind": "Pod",
            "name": "web",
            "namespace": live.namespace,
            "apiVersion": "v1",
        },
        "type": "Warning",
        "reason": markup[:100],
        "message": markup,
        "firstTimestamp": "2027-01-01T00:00:00Z",
        "lastTimestamp": "2027-01-01T00:00:00Z",
        "count": 1,
    }
    live.cluster.call("POST", f"/api/v1/namespaces/{live.namespace}/events", event)
    page = stand.open("/ui/clusters/main/events")
    dialogs: list[str] = []

    def heard(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", heard)
    stand.sign_in(page, token)
    expect(page.get_by_text("onerror=alert(1)").first).to_be_visible()
    assert dialogs == []
    assert page.locator("img").count() == 0


#: What a script of the page tries at the Kubernetes API of the cluster main.
_SCRIPT = """async ([csrf, namespace]) => {
  const api = "/agents/main/api/v1";
  const list = `${api}/namespaces/${namespace}/configmaps`;
  // A request that waits for ever must not let the test wait, too.
  const get = (url) => fetch(url, {signal: AbortSignal.timeout(20000)});
  const send = (method, url, body, headers = {}) =>
    fetch(url, {method, body: JSON.stringify(body), headers: {
      "Content-Type": "application/json", ...headers},
      signal: AbortSignal.timeout(20000)});
  const map = {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "page"}};
  const seen = {};
  seen.read = (await get(`${api}/namespaces`)).status;
  seen.without = (await send("POST", list, map)).status;
  seen.created = (await send("POST", list, map, {"X-Kas-Csrf": csrf})).status;
  const asked = await get(`${list}?kas-websocket-token-request=true`);
  const {token} = await asked.json();
  const url = `wss://${location.host}${list}?watch=1`;
  const socket = new WebSocket(url, ["binary.k8s.io",
    `websocket-token.kas.gitlab.com.${token}`]);
  const event = await new Promise((done) => {
    socket.onmessage = async ({data}) =>
      done(JSON.parse(await new Blob([data]).text()));
    socket.onerror = socket.onclose = () => done({type: "failed"});
    setTimeout(() => done({type: "late"}), 20000);
  });
  seen.watched = [event.type, event.object?.metadata.name];
  socket.close();
  // A response that goes on, and pages on other connections beside it.
  const watch = await get(`${list}?watch=1`);
  const reader = watch.body.getReader();
  seen.stream = new TextDecoder().decode((await reader.read()).value).includes("page");
  seen.beside = (await get("/ui/api/session")).status;
  await reader.cancel();
  const ended = await send("DELETE", `${list}/page`, {}, {"X-Kas-Csrf": csrf});
  seen.deleted = ended.status;
  return seen;
}"""


def test_kubernetes_api(stand: PageStand) -> None:
    """Scripts of the page reach the cluster as their user; a link does not."""
    live = stand.live
    token = token_of(live, "page-api", live.cluster)
    page = stand.open("/")
    stand.sign_in(page, token)
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    csrf = json.loads(page.locator("#boot").text_content() or "")["csrf"]
    # The default ConfigMap of each namespace is older than the watch.
    seen = page.evaluate(_SCRIPT, [csrf, live.namespace])
    assert seen.pop("watched")[0] == "ADDED"
    assert seen == {
        "read": 200,
        "without": 403,
        "created": 201,
        "stream": True,
        "beside": 200,
        "deleted": 200,
    }
    answer = page.goto(f"{stand.origin}/agents/main/api/v1/namespaces")
    assert answer is not None
    assert answer.status == 403
    assert answer.headers["content-security-policy"] == "sandbox"
    stand.faults.clear()
