"""Errors in the form that the client takes."""

from __future__ import annotations

import json
from typing import Any

import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from twisted.internet.error import ConnectionRefusedError
from twisted.trial.unittest import SynchronousTestCase

from modules.kubernetes_api.statuses import status_answer
from tests.modules.kubernetes_api.cases import ProxyCase

PROTOBUF = b"application/vnd.kubernetes.protobuf"
TEXT = 'client -> kas: "no"\n\t\x1b \u00fc \U0001f600 \x85\u2028\x7f: {[#'

_LAYOUT = {
    "TypeMeta": {"apiVersion": 1, "kind": 2},
    "Unknown": {"typeMeta": 1, "raw": 2, "contentEncoding": 3, "contentType": 4},
    "ListMeta": {"selfLink": 1, "resourceVersion": 2, "continue": 3},
    "Status": {"metadata": 1, "status": 2, "message": 3, "reason": 4, "code": 6},
}
_KINDS = {"typeMeta": "TypeMeta", "metadata": "ListMeta"}


def _types() -> dict[str, Any]:
    """The messages of k8s.io/apimachinery, by protobuf itself."""
    file = descriptor_pb2.FileDescriptorProto(name="status.proto", package="k")
    field_type = descriptor_pb2.FieldDescriptorProto
    for name, fields in _LAYOUT.items():
        message = file.message_type.add(name=name)
        for field, number in fields.items():
            one = message.field.add(name=field, number=number, label=1)
            if field in _KINDS:
                one.type = field_type.TYPE_MESSAGE
                one.type_name = f".k.{_KINDS[field]}"
            elif field == "raw":
                one.type = field_type.TYPE_BYTES
            elif field == "code":
                one.type = field_type.TYPE_INT32
            else:
                one.type = field_type.TYPE_STRING
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {}
    for name in _LAYOUT:
        descriptor = pool.FindMessageTypeByName(f"k.{name}")
        found[name] = message_factory.GetMessageClass(descriptor)
    return found


class StatusTests(SynchronousTestCase):
    def answer(
        self, *accept: bytes, code: int = 401, text: str = TEXT
    ) -> tuple[int, bytes, bytes]:
        """Code, content type and body."""
        lines = b"".join(b"\r\nAccept: " + one for one in accept)
        fields = b"\r\nUser-Agent: x" + lines + b"\r\nX: application/yaml"
        code, got, body = status_answer(code, text, b"/x", fields)
        _, _, kind = got.partition(b"Content-Type: ")
        return code, kind.partition(b"\r\n")[0], body

    def test_forms(self) -> None:
        """The one that is preferred, of those that there are."""
        for accept, expected in (
            ((), b"application/json"),
            ((b"",), b"application/json"),
            ((b"*/*",), b"application/json"),
            ((b"application/*",), b"application/json"),
            ((b"Application/YAML",), b"application/yaml"),
            ((PROTOBUF + b";stream=watch",), PROTOBUF),
            ((PROTOBUF + b",application/json",), PROTOBUF),
            ((b"application/json", PROTOBUF), b"application/json"),
            ((b"application/json;q=0.5," + PROTOBUF,), PROTOBUF),
            ((b"application/json;as=Table;v=v1;g=meta.k8s.io",), b"application/json"),
            ((b"text/html, application/yaml;q=0.1",), b"application/yaml"),
            ((b"text/html, */*;q=0.8",), b"application/json"),
            ((b"application/yaml;q=x, application/json;q=0.1",), b"application/json"),
        ):
            code, kind, _ = self.answer(*accept)
            self.assertEqual((code, kind), (401, expected), accept)

    def test_none(self) -> None:
        """406 with the text."""
        for accept in (b"text/html", b"application/json;q=0", b"x" * 5000, b";;;,"):
            code, kind, body = self.answer(accept)
            self.assertEqual((code, kind), (406, b"text/plain; charset=utf-8"))
            self.assertIn(b"client -> kas", body)

    def test_same(self) -> None:
        """All say the same."""
        _, _, body = self.answer(b"application/json")
        status = json.loads(body)
        self.assertEqual(
            status,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": TEXT,
                "reason": "Unauthorized",
                "code": 401,
            },
        )
        _, _, body = self.answer(b"application/yaml")
        said = yaml.safe_load(body)
        self.assertIn("\u00fc \U0001f600", said.pop("message"))
        del status["message"]
        self.assertEqual(said, status)

    def test_protobuf(self) -> None:
        """As the API server writes it."""
        types = _types()
        for code, text in ((401, TEXT), (502, ""), (503, "x" * 100_000)):
            _, _, body = self.answer(PROTOBUF, code=code, text=text)
            self.assertEqual(body[:4], b"k8s\0")
            unknown = types["Unknown"].FromString(body[4:])
            self.assertEqual(unknown.typeMeta.apiVersion, "v1")
            self.assertEqual(unknown.typeMeta.kind, "Status")
            status = types["Status"].FromString(unknown.raw)
            self.assertEqual((status.code, status.message), (code, text))
            self.assertEqual(status.status, "Failure")


class AnswerTests(ProxyCase):
    """Both halves ask what the client takes."""

    def test_kas(self) -> None:
        wire = self.world.request(
            b"GET /x HTTP/1.1", b"Accept: application/yaml", token=b"user:1:nobody"
        )
        head, _, body = wire.taken().partition(b"\r\n\r\n")
        self.assertIn(b"Gitlab-Unauthorized: true", head)
        self.assertEqual(yaml.safe_load(body)["code"], 401)

    def test_agentk(self) -> None:
        endpoint = self.world.cluster.connections
        endpoint.at_once = False
        for accept, start, inside in (
            (PROTOBUF, b"HTTP/1.1 502 Bad Gateway\r\n", b"\r\n\r\nk8s\0"),
            (b"text/html", b"HTTP/1.1 406 Not Acceptable\r\n", b"\r\n\r\nagent -> API"),
        ):
            wire = self.world.request(b"GET /x HTTP/1.1", b"Accept: " + accept)
            endpoint.fail(ConnectionRefusedError())
            self.world.run()
            answer = wire.taken()
            self.assertTrue(answer.startswith(start), answer)
            self.assertIn(inside, answer)
        self.assert_clean()
