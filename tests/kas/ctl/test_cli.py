"""What all commands of kasctl have in common, and ``config check``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from kas.ctl.cli import cli
from modules.agent_configuration.schema import ConfigurationFile
from tests.kas.ctl.kasctl import Kasctl


class TestEveryCommand:
    """What all of them share."""

    def leaves(self, group: click.Group) -> Iterator[click.Command]:
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            if isinstance(found, click.Group):
                yield from self.leaves(found)
            else:
                yield found

    def test_options(self) -> None:
        # A person's own, which are not about a kas on this machine.
        apart = {"login", "logout"}
        every = list(self.leaves(cli))
        commands = [one for one in every if one.name not in apart]
        assert len(commands) == len(every) - len(apart)
        assert commands
        for found in commands:
            names = {name for option in found.params for name in option.opts}
            assert {"--output", "--state-directory"} <= names, found.name
            assert found.help

    def test_summaries_are_whole(self) -> None:
        """A list of commands says of each what it does, to the end of the sentence."""
        for arguments in ((), ("agent",), ("user",), ("config",), ("gitops",)):
            result = CliRunner().invoke(cli, [*arguments, "--help"])
            listed = result.output.partition("Commands:")[2]
            assert listed
            assert "..." not in listed

    def test_misspelt(self) -> None:
        """What was meant, also where it is loaded later; a process has none loaded."""
        for group, said, meant in (
            ((), "agnt", "agent"),
            (("agent",), "manifst", "manifest"),
            (("user",), "revok", "revoke"),
        ):
            words = [sys.executable, "-c", "from kas.ctl import main; main()"]
            done = subprocess.run(
                [*words, *group, said], capture_output=True, text=True
            )
            assert done.returncode == 2
            assert f"Did you mean '{meant}'?" in done.stderr

    def test_a_problem_is_no_traceback(self, kasctl: Kasctl) -> None:
        kasctl.state.mkdir()
        kasctl.state.chmod(0o777)
        assert "chmod 700" in kasctl.fails("agent", "list")
        result = kasctl.run("agent", "list", "--output", "json")
        assert result.exit_code == 1
        assert "chmod 700" in json.loads(result.stdout)["problems"][0]

    def test_as_a_program(self, tmp_path: Path) -> None:
        code = "from kas.ctl import main; main()"
        environ = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")}
        done = subprocess.run(
            [sys.executable, "-c", code, "agent", "add", "prod"],
            capture_output=True,
            text=True,
            env=environ,
            check=True,
        )
        # only the token: "kasctl agent add prod > token" has to work
        assert done.stdout.startswith("kasagent-")
        assert done.stdout.count("\n") == 1
        assert "shown only once" in done.stderr


class TestConfigCheck:
    """config check"""

    def test_good(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "kas.yaml"
        file.write_text("observability: {logging: {level: debug}}")
        assert "is valid" in kasctl.ok("config", "check", str(file))

    def test_all_problems(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "kas.yaml"
        file.write_text("agnet: {}\nobservability: {logging: {level: loud}}\n")
        said = kasctl.fails("config", "check", str(file)).splitlines()
        assert len(said) == 2
        assert said[0].startswith(f"{file}:1:1: unknown key 'agnet'")
        result = kasctl.run("config", "check", str(file), "--output", "json")
        assert len(json.loads(result.stdout)["problems"]) == 2

    def test_the_folder_of_the_audit_log(self, kasctl: Kasctl) -> None:
        """kas would not start without it; the check creates nothing."""
        file, log = kasctl.path / "kas.yaml", kasctl.path / "logs" / "audit.log"
        file.write_text(f"observability: {{audit: {{file: {log}}}}}")
        said = kasctl.fails("config", "check", str(file))
        assert f"audit.file: {log}: folder {log.parent} does not exist" in said
        log.mkdir(parents=True)
        assert "is a folder" in kasctl.fails("config", "check", str(file))
        log.rmdir()
        assert "is valid" in kasctl.ok("config", "check", str(file))
        assert not log.exists()

    def test_no_file(self, kasctl: Kasctl) -> None:
        assert "cannot be read" in kasctl.fails("config", "check", "/none")

    def test_file_of_an_agent(self, kasctl: Kasctl) -> None:
        """All that is wrong, as kas would say it of the file in Git."""
        file = kasctl.path / "config.yaml"
        command = ("config", "check", "--of", "agent_configuration", str(file))
        file.write_text("ci_access: {projects: [{id: group/project}]}\n")
        assert "is valid as a file of agent_configuration" in kasctl.ok(*command)
        file.write_text("ci_acces: {}\nobservability: {logging: {level: loud}}\n")
        said = kasctl.fails(*command).splitlines()
        assert said[0].startswith(f"{file}:1:1: unknown key 'ci_acces'")
        assert said[1].startswith(f"{file}:2:34: observability.logging.level")
        refused = kasctl.fails("config", "check", "--of", "agents", str(file))
        assert "no file belongs to 'agents'" in refused

    def test_file_of_an_agent_as_kas_reads_it(self, kasctl: Kasctl) -> None:
        """With the same limit, the same YAML, and the same remarks."""
        file = kasctl.path / "config.yaml"
        command = ("config", "check", "--of", "agent_configuration", str(file))
        file.write_text("# " + "x" * ConfigurationFile.MAX_BYTES)
        said = kasctl.fails(*command)
        assert said.startswith(f"{file} has more than 131072 bytes")
        kasctl.ok(*command, "--max-size", "129KiB")
        assert "not a size" in kasctl.fails(*command, "--max-size", "many", code=2)
        assert "--of" in kasctl.fails(
            "config", "check", str(file), "--max-size", "1KiB", code=2
        )
        file.write_text(
            "ciAccess: {projects: [{id: a, resourceManagement: {enabled: yes}}]}\n"
        )
        result = kasctl.run(*command)
        assert result.exit_code == 0
        assert "'resourceManagement' has" not in result.stderr
        assert (
            f"{file}:1:52: ci_access.projects[0].resource_management: " in result.stderr
        )
        assert "'enabled' has no effect" in result.stderr

    def test_schema(self, kasctl: Kasctl) -> None:
        """For editors: kas' own file, and those of agents."""
        found = json.loads(kasctl.ok("config", "schema"))
        assert "poll_period" not in str(found["properties"]["agent"]["properties"])
        assert found["properties"]["agent"]["additionalProperties"] is True
        listen = found["properties"]["agent"]["properties"]["listen"]
        assert listen["properties"]["address"]["default"] == "127.0.0.1:8150"
        found = json.loads(kasctl.ok("config", "schema", "agent_configuration"))
        assert "ci_access" in found["properties"]
        said = kasctl.fails("config", "schema", "agent_configurations")
        assert "did you mean 'agent_configuration'?" in said
