"""Many objects with one request, and not more requests than one for each."""

from __future__ import annotations

import json
from typing import Any

from modules.gitops.agent.inventory import listing
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text


class ListingTests(HalvesTestCase):
    """Requests of a whole pass."""

    def asked(self, method: str) -> list[str]:
        return [
            one.path.partition("?")[0]
            for one in self.cluster.requests
            if one.method == method and "/configmaps" in one.path
        ]

    def again(self) -> None:
        """Another agentk leads, which has not applied any of them."""
        self.leave()
        self.cluster.requests.clear()
        self.lead()
        self.passes(5)

    def test_many_are_listed(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(*range(20)))})
        self.configure({"id": "apps"})
        self.again()
        collection = "/api/v1/namespaces/default/configmaps"
        self.assertEqual(self.asked("GET").count(collection), 1)
        self.assertEqual([one for one in self.asked("GET") if "/m0" in one], [])
        # The inventory says that they are as the last one applied them.
        self.assertEqual(self.asked("PATCH"), [])
        self.assertEqual(len(self.said("20 unchanged")), 1)

    def test_what_a_new_agentk_takes_over(self) -> None:
        """It sends what has changed meanwhile, and sees what changes from then on."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(20)))})
        self.configure({"id": "apps"})
        self.leave()
        self.edit("m003")
        self.cluster.requests.clear()
        self.lead()
        self.passes(5)
        # Refused as a conflict, which is drift, and taken back.
        paths = [one for one in self.asked("PATCH") if "/m0" in one]
        self.assertEqual([one[-5:] for one in paths], ["/m003"] * 2)
        self.assertEqual(self.live("m003")["data"], {"n": "3"})
        self.edit("m007")
        self.passes(7)
        self.assertEqual(self.live("m007")["data"], {"n": "7"})
        # What was repaired is sent once more: a repair does not write the inventory.
        self.again()
        paths = [one for one in self.asked("PATCH") if "/m0" in one]
        self.assertEqual([one[-5:] for one in paths], ["/m007"])

    def edit(self, name: str) -> None:
        live = self.live(name)
        live["data"] = {"n": "theirs"}
        self.cluster.objects.put(live)

    def test_no_word_of_secrets(self) -> None:
        """Who may read the inventory could try out what they hold."""
        secret = object_("s", "Secret", data={"password": "MTIzNA=="})
        self.apps.commit({"a.yaml": text(secret, *config_maps(1))})
        self.configure({"id": "apps"})
        (name,) = [
            one.path.rpartition("/")[2]
            for one in self.cluster.requests
            if one.method == "PUT" and "/inventory-" in one.path
        ][-1:]
        data = self.live(name)["data"]
        applied = {
            name: json.loads(data[name])["applied"].rpartition(":")[0]
            for name in ("default_s__Secret", "default_m001__ConfigMap")
        }
        self.assertEqual(applied["default_s__Secret"], "")
        self.assertNotEqual(applied["default_m001__ConfigMap"], "")

    def test_few_are_asked_for(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        self.again()
        self.assertEqual(len([one for one in self.asked("GET") if "/m0" in one]), 2)

    def test_among_many_of_others(self) -> None:
        """The list is given up; what it did not show is asked for."""
        self.patch(listing, "PAGE", 10)
        for number in range(50):
            one = object_(f"a{number}", metadata={"namespace": "default"})
            self.cluster.objects.put(one)
        self.apps.commit({"a.yaml": text(*config_maps(*range(6)))})
        self.configure({"id": "apps"})
        self.again()
        self.assertEqual(len([one for one in self.asked("GET") if "/m0" in one]), 6)
        self.assertEqual(len(self.said("6 unchanged")), 1)

    def test_what_may_not_be_listed(self) -> None:
        denied: dict[str, Any] = {"kind": "Status", "message": "no", "code": 403}
        self.apps.commit({"a.yaml": text(*config_maps(*range(6)))})
        path = "/api/v1/namespaces/default/configmaps?limit=500"
        self.cluster.answer("GET", path, denied, 403)
        self.configure({"id": "apps"})
        self.assertEqual(len(self.said("6 created")), 1)

    def test_what_left_is_not_remembered(self) -> None:
        """Names with a hash in them come and go for as long as agentk runs."""
        for number in range(5):
            objects = config_maps(*range(number, number + 3))
            self.apps.commit({"a.yaml": text(*objects)})
            self.configure({"id": "apps"})
            self.pushed()
        (project,) = self.agent.projects.values()
        self.assertEqual(
            {key.name for key in project.passes.reconciler.settled},
            {"m004", "m005", "m006"},
        )

    def test_a_new_commit_applies_what_changed(self) -> None:
        """Of what is as it was applied nothing is sent again."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(20)))})
        self.configure({"id": "apps"})
        self.cluster.requests.clear()
        changed = [*config_maps(*range(19)), object_("m019", data={"n": "x"})]
        self.apps.commit({"a.yaml": text(*changed)})
        self.pushed()
        paths = [one for one in self.asked("PATCH") if "/m0" in one]
        self.assertEqual(len(paths), 1)
        self.assertEqual(self.live("m019")["data"], {"n": "x"})
        self.assertEqual(len(self.said("1 changed, 19 unchanged")), 1)

    def test_new_namespaces(self) -> None:
        """What is in them is not looked for, and is made with one request each."""
        names = [f"space-{n}" for n in range(listing.MANY)]
        spaces = [object_(name, "Namespace") for name in names]
        inside = [
            object_(f"m{n}", metadata={"namespace": name})
            for name in names
            for n in range(listing.MANY)
        ]
        self.apps.commit({"a.yaml": text(*spaces, *inside)})
        self.configure({"id": "apps"})
        self.passes(5)
        self.assertEqual(len(self.said(f"{len(spaces + inside)} created")), 1)
        looked = [one for one in self.asked("GET") if "/space-" in one]
        self.assertEqual(looked, [])
        written = [one for one in self.asked("PATCH") if "/space-" in one]
        self.assertEqual(len(written), len(inside))
