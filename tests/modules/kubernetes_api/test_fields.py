"""Header fields: as whom the API server sees a request."""

from __future__ import annotations

from modules.kubernetes_api.fields import Impersonations, Refused
from tests.modules.kubernetes_api.cases import ProxyCase, head_of
from tunnel.interfaces import Access, Impersonation


class ImpersonationTests(ProxyCase):
    """`Impersonations`."""

    def fields(self, impersonation: Impersonation) -> bytes:
        access = Access("c", "1", "a", impersonation)
        return Impersonations().fields(access, head_of())

    def test_all_fields(self) -> None:
        """Escaped like client-go does it."""
        self.assertEqual(
            self.fields(
                Impersonation(
                    "gitlab:user:ä",
                    ("g:1", "g:2"),
                    "42",
                    {"agent.gitlab.com/id": ("7", ""), "50%": ("x",)},
                )
            ),
            "\r\nImpersonate-User: gitlab:user:ä\r\nImpersonate-Uid: 42"
            "\r\nImpersonate-Group: g:1\r\nImpersonate-Group: g:2"
            "\r\nImpersonate-Extra-agent.gitlab.com%2Fid: 7"
            "\r\nImpersonate-Extra-agent.gitlab.com%2Fid: "
            "\r\nImpersonate-Extra-50%25: x".encode(),
        )

    def test_malformed(self) -> None:
        """Never a header that means somebody else, or nobody."""
        for impersonation in (
            Impersonation(""),
            Impersonation(" root"),
            Impersonation("a\r\nImpersonate-User: root"),
            Impersonation("a\0"),
            Impersonation("a", ("",)),
            Impersonation("a", ("b\n",)),
            Impersonation("a", (), "\t"),
            Impersonation("a", (), "", {"": ("x",)}),
            Impersonation("a", (), "", {"k": ("x\r",)}),
        ):
            error = self.assertRaises(Refused, self.fields, impersonation)
            self.assertEqual(error.status, 500)

    def test_cache_follows_the_credential(self) -> None:
        """A credential whose impersonation changed gets the new one."""
        cache = Impersonations()
        for name in ("a", "b", "b"):
            access = Access("c", "1", "a", Impersonation(name))
            self.assertIn(name.encode(), cache.fields(access, head_of()))

    def test_cache_is_bounded(self) -> None:
        """It holds what is in use, not what ever was."""
        cache = Impersonations()
        for number in range(10_001):
            cache.fields(Access(str(number), "1", "a", Impersonation("u")), head_of())
        self.assertLessEqual(len(cache._cached), 10_000)
