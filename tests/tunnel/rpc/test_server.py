"""Who answers calls."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.rpc.server import snake_case


class NameTests(SynchronousTestCase):
    """What a method is called in Python."""

    def test_snake_case(self) -> None:
        """Words begin with capitals; acronyms are one word, their plurals, too."""
        for name, expected in (
            ("Say", "say"),
            ("GetPodList", "get_pod_list"),
            ("GetURL", "get_url"),
            ("HTTPServer", "http_server"),
            ("GetAgentsByAgentIDs", "get_agents_by_agent_ids"),
            ("ListIDsOfV2", "list_ids_of_v2"),
            ("GetAsset", "get_asset"),
        ):
            self.assertEqual(snake_case(name), expected)
