"""
What an API server does with the requests of `IKubernetesClient`.

The real one and `tunnel.testing.FakeObjects` have to do the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import Any

from tunnel.api import IKubernetesClient, WatchEvent
from tunnel.errors import CallError, Status

LABEL = "of=the-scenario"


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"of": "the-scenario"},
        },
        "data": data,
    }


async def refused(asking: Awaitable[Any], status: Status, *parts: str) -> None:
    """*asking* fails like this, with each of *parts* in its message."""
    try:
        answer = await asking
    except CallError as error:
        assert error.status is status, error
        for part in parts:
            assert part in error.message
    else:
        raise AssertionError(f"{answer!r} in place of {status.name}")


async def following(
    events: AsyncGenerator[WatchEvent, None], count: int
) -> list[tuple[str, str]]:
    """The next *count* events, bookmarks left out: what, and of which object."""
    seen: list[tuple[str, str]] = []
    while len(seen) < count:
        event = await anext(events)
        name = event.object["metadata"]["name"] if event.object else ""
        if event.type.name != "BOOKMARK":
            seen.append((event.type.name, name))
    return seen


async def play(client: IKubernetesClient, namespace: str) -> None:
    """
    All of it, in a namespace that is empty but for what API servers put there.

    :raises AssertionError: something is otherwise.
    """
    maps = await client.resource("v1", "ConfigMap")
    assert (maps.api_version, maps.name, maps.namespaced) == ("v1", "configmaps", True)
    assert "patch" in maps.verbs
    await refused(client.resource("v1", "Nothing"), Status.NOT_FOUND)

    # Server-side apply, and who owns which field.
    made = await client.apply(
        config_map(namespace, "a", one="1", two="2"), field_manager="first"
    )
    assert made["data"] == {"one": "1", "two": "2"}
    again = await client.apply(
        config_map(namespace, "a", one="1", two="2"), field_manager="first"
    )
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    await refused(
        client.apply(config_map(namespace, "a", one="2"), field_manager="second"),
        Status.ABORTED,
        "first",
        ".data.one",
    )
    forced = await client.apply(
        config_map(namespace, "a", one="2"), field_manager="second", force=True
    )
    assert forced["data"] == {"one": "2", "two": "2"}
    dropped = await client.apply(config_map(namespace, "a"), field_manager="first")
    assert dropped["data"] == {"one": "2"}
    await client.apply(config_map(namespace, "a"), field_manager="second")

    # A dry run changes nothing.
    dry = await client.apply(
        config_map(namespace, "b"), field_manager="first", dry_run=True
    )
    assert dry["metadata"]["name"] == "b"
    await refused(client.get(maps, "b", namespace), Status.NOT_FOUND)

    # Pages, and a watch of what follows.
    for name in "cdefg":
        await client.apply(config_map(namespace, name), field_manager="first")
    pages = [
        [one["metadata"]["name"] for one in page]
        async for page in client.list(maps, namespace, label_selector=LABEL, limit=2)
        if page
    ]
    assert pages == [["a", "c"], ["d", "e"], ["f", "g"]]
    named = [
        one["metadata"]["name"]
        async for page in client.list(
            maps, namespace, label_selector=LABEL, field_selector="metadata.name!=a"
        )
        for one in page
    ]
    assert named == [*"cdefg"]
    events = client.watch(maps, namespace, label_selector=LABEL)
    there = [("ADDED", name) for name in "acdefg"]
    assert await following(events, 8) == [("RESET", ""), *there, ("SYNCED", "")]
    changed = await client.patch(maps, "a", {"data": {"two": "2"}}, namespace)
    assert changed["data"]["two"] == "2"
    # What was changed in another way belongs to whoever did that.
    await refused(
        client.apply(config_map(namespace, "a", two="3"), field_manager="first"),
        Status.ABORTED,
        ".data.two",
    )
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    await refused(client.patch(maps, "a", old, namespace), Status.ABORTED)
    assert await following(events, 1) == [("MODIFIED", "a")]

    # Deleting, where conditions hold, and where something has to be done before.
    await refused(
        client.delete(maps, "c", namespace, uid="not-this-one"), Status.ABORTED
    )
    await client.delete(maps, "c", namespace, dry_run=True)
    await client.delete(maps, "c", namespace)
    await client.delete(maps, "c", namespace)
    assert await following(events, 1) == [("DELETED", "c")]
    finalizers = {"metadata": {"finalizers": ["example.com/wait"]}}
    await client.patch(maps, "d", finalizers, namespace)
    await client.delete(maps, "d", namespace)
    going = await client.get(maps, "d", namespace)
    assert going["metadata"]["deletionTimestamp"]
    await client.patch(maps, "d", {"metadata": {"finalizers": None}}, namespace)
    await refused(client.get(maps, "d", namespace), Status.NOT_FOUND)
    assert await following(events, 3) == [
        ("MODIFIED", "d"),
        ("MODIFIED", "d"),
        ("DELETED", "d"),
    ]
    await events.aclose()
