"""GitOps within the policy of the cluster's owner."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from modules.gitops.agent.inventory.identity import inventory_id
from modules.gitops.agent.inventory.inventory import LABEL, part_name
from modules.gitops.agent.module import GitopsAgent
from tests.agentk.policy.world import PolicyWorld
from tests.modules.gitops.halves import HalvesTestCase, text

POLICY = """\
kind: AgentPolicy
rules:
- {name: gitops, allow: ["*"], resources: [configmaps], namespaces: [apps],
   modules: [gitops]}
- {name: claims, allow: [list], resources: [configmaps], modules: [gitops]}
- {name: victim, deny: [get, delete], resources: [configmaps], namespaces: [victim]}
- {name: former, allow: [get], resources: [configmaps], namespaces: [former]}
- {name: keep, deny: [delete, patch], resources: [configmaps], names: [keep]}
"""


def config_map(name: str, namespace: str = "apps") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    }


class OwnerPolicyTests(HalvesTestCase):
    """A policy for the module, with rules for one namespace."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        world = PolicyWorld(Path(folder.name), POLICY)
        world.start()
        world.guard.floor.namespace = "default"
        world.guard.floor.is_closed = False
        self.guard = world.guard
        # As agentk calls it.
        GitopsAgent.name = "gitops"
        self.addCleanup(delattr, GitopsAgent, "name")
        super().setUp()

    def applies(self, *objects: dict[str, object]) -> None:
        """Push objects."""
        self.apps.commit({"a.yaml": text(*objects)})
        self.pushed()

    def test_permitted(self) -> None:
        """What the rules permit is applied and pruned; records need no rule."""
        self.apps.commit({"a.yaml": text(config_map("one"), config_map("two"))})
        self.configure({"id": "apps"})
        self.assertTrue(self.live("one", "apps"))
        self.assertTrue(self.live("two", "apps"))
        self.applies(config_map("one"))
        self.assertTrue(self.live("one", "apps"))
        self.assertIsNone(self.live("two", "apps"))
        records = [
            one
            for one in self.cluster.requests
            if "/secrets/gitops-orders-" in one.path or "/inventory-" in one.path
        ]
        self.assertTrue(records)

    def former_inventory(self, namespace: str) -> str:
        """Put an inventory of the project, and return its name."""
        inventory = inventory_id("1", 0, "apps", "")
        name = part_name(inventory, 0)
        found = config_map(name, namespace)
        found["metadata"]["labels"] = {LABEL: inventory}
        found["data"] = {f"{namespace}_a__ConfigMap": ""}
        self.cluster.objects.put(found)
        return name

    def left(self, namespace: str) -> None:
        """Apply two commits; the inventory in a former namespace has to stay."""
        name = self.former_inventory(namespace)
        self.apps.commit({"a.yaml": text(config_map("one"))})
        self.configure({"id": "apps", "default_namespace": namespace})
        self.passes(60)
        self.assertTrue(self.live("one", "apps"))
        self.assertTrue(self.live(name, "default"))
        self.applies(config_map("one"), config_map("two"))
        self.passes(600)
        self.assertTrue(self.live("two", "apps"))
        self.assertTrue(self.live(name, namespace))
        self.assertEqual(
            len(self.said(f"leaving the former inventory {namespace}/")), 1
        )

    def test_former_inventory(self) -> None:
        """kas cannot name a namespace to have ConfigMaps read or deleted there."""
        self.left("victim")
        there = [one.path for one in self.cluster.requests if "/victim/" in one.path]
        self.assertEqual(there, [])

    def test_readable_former_inventory(self) -> None:
        """A rule for reads alone does not permit the delete."""
        self.left("former")

    def test_denied(self) -> None:
        """The rest of the commit is not applied, and the reason is shown."""
        objects = config_map("one"), config_map("keep"), config_map("far", "other")
        self.apps.commit({"a.yaml": text(*objects)})
        self.configure({"id": "apps"})
        self.assertIsNone(self.live("keep", "apps"))
        self.assertIsNone(self.live("far", "other"))
        self.assertTrue(self.said("forbidden by the policy of the cluster's owner"))
        self.assertTrue(self.said("the rule 'keep' denies it"))
        written = [
            one.path
            for one in self.cluster.requests
            if one.method != "GET" and ("/keep" in one.path or "/other/" in one.path)
        ]
        self.assertEqual(written, [])
