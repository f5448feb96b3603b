"""
GitLab's public API, as far as comments on merge requests go (its "Notes API"), and what
it says of merge requests and projects.

A request that GitLab would refuse is refused, and noted in `FakeNotes.violations`.

``python -m tests.fakes.notes TOKEN-FILE`` runs it as a process: it prints its port.
``PUT /control`` has it know the merge request of an event.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
from klein import Klein
from twisted.web.iweb import IRequest

__all__ = ["FakeNotes"]

_NOTES = "/api/v4/projects/<int:project>/merge_requests/<int:number>/notes"

_DESCRIBED = "/api/v4/projects/<int:project>/merge_requests/<int:number>"

#: Characters that GitLab takes.
MAX_BODY = 1_000_000


@attrs.define(eq=False)
class FakeNotes:
    """
    :param tokens: who may ask: the user's id, by token.
    :ivar notes: of each merge request, by project and number, as GitLab shows them.
    :ivar merge_requests: by project and number, as GitLab describes them.
    :ivar projects: by id, likewise.
    :ivar mood: ``ok``, or the status of every answer.
    :ivar asked: how often, by method.
    """

    tokens: dict[str, int] = attrs.field(repr=False)
    notes: dict[tuple[int, int], list[dict[str, Any]]] = attrs.field(factory=dict)
    merge_requests: dict[tuple[int, int], dict[str, Any]] = attrs.field(factory=dict)
    projects: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    mood: str = "ok"
    asked: Counter[str] = attrs.field(factory=Counter)
    violations: list[str] = attrs.field(factory=list)
    app: Klein = attrs.field(init=False)
    _count: int = attrs.field(default=300, init=False)

    def __attrs_post_init__(self) -> None:
        self.app = Klein()
        self.app.route("/api/v4/user", methods=["GET"])(self._user)
        self.app.route(_NOTES, methods=["GET"])(self._list)
        self.app.route(_NOTES, methods=["POST"])(self._create)
        self.app.route(f"{_NOTES}/<int:note>", methods=["GET"])(self._one)
        self.app.route(f"{_NOTES}/<int:note>", methods=["PUT"])(self._change)
        self.app.route(f"{_NOTES}/<int:note>", methods=["DELETE"])(self._delete)
        self.app.route(_DESCRIBED, methods=["GET"])(self._described)
        self.app.route("/api/v4/projects/<int:project>", methods=["GET"])(self._project)
        self.app.route("/control", methods=["PUT"])(self._control)
        self.app.route("/", branch=True)(self._unknown)

    def know(self, event: dict[str, Any]) -> None:
        """Have the merge request of a webhook's event, as that says."""
        said, project = event["object_attributes"], event["project"]
        key = project["id"], said["iid"]
        self.projects[project["id"]] = dict(project)
        self.merge_requests[key] = {
            "iid": said["iid"],
            "state": said["state"],
            "source_project_id": said["source_project_id"],
            "target_project_id": said["target_project_id"],
            "target_branch": said["target_branch"],
            "sha": said["last_commit"]["id"],
        }

    def _control(self, request: IRequest) -> bytes:
        self.know(json.load(request.content))
        return _say(request, {})

    def _described(self, request: IRequest, project: int, number: int) -> bytes:
        user, answer = self._begin(request)
        if not user:
            return answer
        found = self.merge_requests.get((project, number))
        if found is None:
            return _say(request, {"message": "404 Not found"}, 404)
        return _say(request, found)

    def _project(self, request: IRequest, project: int) -> bytes:
        user, answer = self._begin(request)
        if not user:
            return answer
        if project not in self.projects:
            return _say(request, {"message": "404 Project Not Found"}, 404)
        return _say(request, self.projects[project])

    def add(self, user: int, text: str, key: tuple[int, int] = (5, 7)) -> int:
        """A comment; its id."""
        self._count += 1
        note = {
            "id": self._count,
            "body": text,
            "author": {"id": user, "username": f"user-{user}"},
            "system": False,
            "noteable_type": "MergeRequest",
            "project_id": key[0],
            "noteable_iid": key[1],
        }
        self.notes.setdefault(key, []).append(note)
        return self._count

    def _unknown(self, request: IRequest) -> bytes:
        path = f"{request.method.decode()} {request.path.decode()}"
        self.violations.append(f"{path}: GitLab has no such path")
        return _say(request, {"error": "404 Not Found"}, 404)

    def _begin(self, request: IRequest) -> tuple[int, bytes]:
        """Who asks; or what is answered at once."""
        self.asked[request.method.decode()] += 1
        if self.mood != "ok":
            if self.mood == "429":
                request.setHeader(b"retry-after", b"3")
            return 0, _say(request, {"message": self.mood}, int(self.mood))
        token = request.getHeader("private-token") or ""
        user = self.tokens.get(token, 0)
        if not user:
            return 0, _say(request, {"message": "401 Unauthorized"}, 401)
        return user, b""

    def _user(self, request: IRequest) -> bytes:
        user, answer = self._begin(request)
        return answer or _say(request, {"id": user, "username": f"user-{user}"})

    def _list(self, request: IRequest, project: int, number: int) -> bytes:
        user, answer = self._begin(request)
        if not user:
            return answer
        query = {name.decode(): one[0].decode() for name, one in request.args.items()}
        if set(query) - {"sort", "order_by", "per_page", "page"}:
            self.violations.append(f"GitLab does not know all of {sorted(query)}")
        notes = list(self.notes.get((project, number), []))
        if query.get("sort", "desc") == "desc":
            notes.reverse()
        page, size = int(query.get("page", 1)), int(query.get("per_page", 20))
        if size > 100:
            self.violations.append("GitLab has at most 100 on a page")
        return _say(request, notes[(page - 1) * size : page * size])

    def _create(self, request: IRequest, project: int, number: int) -> bytes:
        user, answer = self._begin(request)
        if not user:
            return answer
        text = self._text(request)
        if text is None:
            return _say(request, {"error": "body is missing"}, 400)
        note = self.add(user, text, (project, number))
        return _say(request, {"id": note, "body": text}, 201)

    def _one(self, request: IRequest, project: int, number: int, note: int) -> bytes:
        user, answer = self._begin(request)
        if not user:
            return answer
        for one in self.notes.get((project, number), []):
            if one["id"] == note:
                return _say(request, one)
        return _say(request, {"message": "404 Note Not Found"}, 404)

    def _change(self, request: IRequest, project: int, number: int, note: int) -> bytes:
        return self._edit(request, project, number, note, "PUT")

    def _delete(self, request: IRequest, project: int, number: int, note: int) -> bytes:
        return self._edit(request, project, number, note, "DELETE")

    def _edit(
        self, request: IRequest, project: int, number: int, note: int, method: str
    ) -> bytes:
        user, answer = self._begin(request)
        if not user:
            return answer
        notes = self.notes.get((project, number), [])
        found = [one for one in notes if one["id"] == note]
        if not found:
            return _say(request, {"message": "404 Note Not Found"}, 404)
        if found[0]["author"]["id"] != user:
            self.violations.append(f"{method} of a note of somebody else")
            return _say(request, {"message": "403 Forbidden"}, 403)
        if method == "DELETE":
            notes.remove(found[0])
            request.setResponseCode(204)
            return b""
        text = self._text(request)
        if text is None:
            return _say(request, {"error": "body is missing"}, 400)
        found[0]["body"] = text
        return _say(request, found[0])

    def _text(self, request: IRequest) -> str | None:
        if request.getHeader("content-type") != "application/json":
            self.violations.append("the body is JSON")
            return None
        body = json.load(request.content)
        if set(body) != {"body"} or not 0 < len(body["body"]) <= MAX_BODY:
            self.violations.append(f"GitLab takes no body with {sorted(body)}")
            return None
        # As GitLab does where it looks for commands in a comment.
        return str(body["body"]).rstrip()


def _say(request: IRequest, answer: Any, code: int = 200) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"application/json")
    return json.dumps(answer).encode()


def main(token_file: str) -> None:
    """Serve until the process is killed."""
    from twisted.internet import endpoints, reactor
    from twisted.web.server import Site

    clock: Any = reactor
    fake = FakeNotes({Path(token_file).read_text().strip(): 9})
    listening = endpoints.serverFromString(clock, "tcp:0:interface=127.0.0.1").listen(
        Site(fake.app.resource())
    )
    listening.addCallback(lambda port: print(port.getHost().port, flush=True))
    clock.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
