"""
The API that the server halves of modules use, with one object for each subject.

    context.py   the state that all modules of the process share, and a module's API
    part.py      the modules as a part of kas
    agents.py    the connected agents, and their problems
    users.py     credentials of users
    audit.py     the audit log
    network.py   listeners, and connections to other servers
    redis_publisher.py  a connection to a Redis of another system
    peers.py     calls between the kas of a fleet
    workers.py   limits that the workers of one kas share
"""

from kas.modules.agents import AgentProblems
from kas.modules.context import ServerContext
from kas.modules.part import ModulesPart
from kas.modules.users import HeldCredentials
from tunnel.program.module_ports import ModulePorts

__all__ = [
    "AgentProblems",
    "HeldCredentials",
    "ModulePorts",
    "ModulesPart",
    "ServerContext",
]
