"""``twistd agentk``: its options, and the service that they create."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from twisted.application.service import IService

from agentk.config import (
    AgentkConfiguration,
    AgentkOptions,
    TokenSource,
    read_configuration,
    read_options,
    read_token,
)
from agentk.kubernetes.cluster import ClusterAccess, find_cluster
from agentk.service import AgentkService
from tunnel.config import read_file
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared
from tunnel.program.options import ProgramOptions
from tunnel.program.startup import obey_signals, refuse
from tunnel.program.tuning import (
    allow_many_files,
    hide_memory,
    keep_time,
    tune_allocator,
)


class Options(ProgramOptions):
    """The options of the command line."""

    choices: ClassVar = {
        **ProgramOptions.choices,
        "log-level": ("debug", "info", "warn", "error"),
    }
    synopsis = "--kas-address URL (--token-file FILE | $AGENTK_TOKEN) [options]"
    longdesc = (
        "The agent that connects a Kubernetes cluster to kas. In a pod it finds the "
        "API server and its service account by itself; elsewhere it needs a "
        "kubeconfig. Create the token with `kasctl agent add` on the machine of kas."
    )

    optParameters = [
        [
            "token-file",
            None,
            None,
            "File with the agent's token; or set $AGENTK_TOKEN.",
        ],
        ["ca-cert-file", None, None, "Additional CAs (PEM) for kas' certificate."],
        [
            "kas-tls-server-name",
            None,
            None,
            "The name that kas' certificate must contain.",
        ],
        [
            "observability-listen-network",
            None,
            "tcp",
            "Network for health and metrics: tcp, tcp4, tcp6 or unix.",
        ],
        [
            "observability-listen-address",
            None,
            ":8080",
            "Address for /liveness, /readiness and /metrics.",
        ],
        [
            "observability-cert-file",
            None,
            None,
            "Certificate for that address, which enables TLS.",
        ],
        ["observability-key-file", None, None, "Its key."],
        [
            "kubeconfig",
            None,
            None,
            "Path of a kubeconfig [default: $KUBECONFIG; in a pod, the pod's service "
            "account; otherwise ~/.kube/config].",
        ],
        ["context", None, None, "The context of the kubeconfig to use."],
        [
            "namespace",
            None,
            None,
            "The namespace in which agentk runs; or set $POD_NAMESPACE.",
        ],
        [
            "configuration-file",
            None,
            None,
            "YAML file with a section for each agent module: `modules: {NAME: …}`.",
        ],
        [
            "log-format",
            None,
            "auto",
            "text, json, or auto: text on a terminal, JSON lines elsewhere.",
        ],
        ["log-level", None, "info", "debug, info, warn or error."],
    ]
    optFlags = [
        [
            "kas-insecure-skip-tls-verify",
            None,
            "Trust any server that responds as kas. For tests only.",
        ],
        ["check", None, "Check the options, report problems, and exit."],
    ]

    checked: AgentkOptions
    configuration: AgentkConfiguration
    modules: list[Prepared]
    token: TokenSource
    cluster: ClusterAccess

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self["kas-header"] = []
        self["kas-address"] = []

    def opt_kas_address(self, text: str) -> None:
        """tls://HOST:8150 or wss://HOST/PATH; may be repeated."""
        self["kas-address"].append(text)

    def opt_kas_header(self, text: str) -> None:
        """Add a header to the WebSocket to kas, `Name: value`; may be repeated."""
        self["kas-header"].append(text)

    def usable(self) -> str:
        """Return the output of ``--check`` if the configuration has no errors."""
        return "the options are valid"

    def steps(self) -> Sequence[Callable[[], None]]:
        """Return the steps that check the options and the files that they name."""
        return self._options, self._modules, self._token, self._cluster

    def _options(self) -> None:
        self.checked = read_options(self, os.environ)

    def _modules(self) -> None:
        self.configuration, self.modules = read_configuration(
            self["configuration-file"]
        )
        policy = self.configuration.policy.file
        # Without a valid policy, agentk starts, and denies all requests until there is
        # one.  A running agentk also checks the signatures of the policy.
        if policy is not None and self["check"]:
            # Imported here, because it takes 1 MiB of memory.
            from agentk.policy.document import MAX_FILE, PolicyFile

            read_file(policy, PolicyFile, max_bytes=MAX_FILE)

    def _token(self) -> None:
        self.token = read_token(self["token-file"], os.environ)

    def _cluster(self) -> None:
        # Imported here, because the reactor is chosen only at this point.
        from twisted.internet import reactor

        self.cluster = find_cluster(
            reactor, time.time, self["kubeconfig"], self["context"], os.environ
        )


def makeService(options: Options) -> IService:
    from twisted.internet import reactor

    tune_allocator()
    # agentk's memory is hidden from other processes, because programs that agentk
    # starts process untrusted data.
    hide_memory()
    few_files = allow_many_files()
    keep_time(reactor)
    service = AgentkService(
        options.checked,
        options.configuration,
        options.token,
        options.cluster,
        options.modules,
        reactor,
        remarks=[] if few_files is None else [few_files],
    )
    try:
        service.log_as_told(
            options.parent or {}, options["log-format"], options["log-level"]
        )
    except ConfigurationError as error:
        refuse(error.problems)
    obey_signals(service, reactor)
    return service
