"""Checks of the installed files and of an image's content, as far as possible without a container."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from parley.compat.organisation import driver_of, read_orgfile, settings_of
from parley.drivers.agentzero import AgentZeroDriver

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPT = DEPLOY / "install_a2a_server.sh"


def install(prefix: Path, **more: str) -> str:
    """Everything but pip's own work, which is only noted."""
    pip = prefix.parent / "pip"
    pip.write_text(f'#!/bin/sh\necho "$@" >> {prefix.parent}/pip.log\necho --break-system-packages\n')
    pip.chmod(0o755)
    env = {**os.environ, "PREFIX": str(prefix), "PIP": str(pip), "PYTHON": sys.executable, "START": "systemd", **more}
    done = subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(place: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(place)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in place.rglob("*")
        if path.is_file()
    }


def test_the_script_is_sound() -> None:
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
    assert os.access(SCRIPT, os.X_OK)


def test_it_does_the_four_things_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    prefix = tmp_path / "root"
    install(prefix)
    assert "install --quiet --break-system-packages" in (tmp_path / "pip.log").read_text()
    modules = {path.name for path in (prefix / "a0/python/a2a_server").iterdir()}
    assert modules >= {
        "__init__.py", "server.py", "agent_card.py", "task_registry.py", "translation.py", "agent_bridge.py",
        "config.py", "run.py",
    }  # fmt: skip
    config = prefix / "a0/usr/organizations/a2a_config.json"
    file, unknown = read_orgfile(config)
    assert unknown == []
    assert settings_of(file, config.parent).auth == "required"
    assert len(file.authentication.api_key or "") > 30
    assert config.stat().st_mode & 0o777 == 0o600
    assert json.loads((config.parent / "active.json").read_text())["org_id"] == "software_dev"
    unit = (prefix / "etc/systemd/system/a2a-server.service").read_text()
    assert "-m a2a_server.run --config /a0/usr/organizations/a2a_config.json" in unit
    assert "User=a2a" in unit.splitlines()
    before = contents(prefix)
    said = install(prefix)
    assert contents(prefix) == before
    assert "stays as it is" in said


def test_the_unit_has_the_hardening_of_the_servers_own(tmp_path: Path) -> None:
    install(tmp_path / "root")
    unit = (tmp_path / "root/etc/systemd/system/a2a-server.service").read_text()
    own = (DEPLOY / "systemd" / "parley.service").read_text()
    hardening = own[own.index("CapabilityBoundingSet=") : own.index("[Install]")].split()
    assert len(hardening) > 20
    assert set(hardening) <= set(unit.split())
    assert "ReadWritePaths=/a0/usr/organizations/a2a_data /a0/usr/organizations/reports" in unit.splitlines()


def test_a_key_can_be_given_or_left_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, kept in (("my-own-key-0123456789", "my-own-key-0123456789"), ("", None)):
        prefix = tmp_path / (given or "none") / "root"
        prefix.mkdir(parents=True)
        install(prefix, API_KEY=given)
        config = prefix / "a0/usr/organizations/a2a_config.json"
        file, _ = read_orgfile(config)
        assert file.authentication.api_key == kept
        assert settings_of(file, config.parent).auth == "required"
    monkeypatch.setenv("PARLEY_API_KEY", "from-the-environment-0123")
    key = settings_of(file, config.parent).api_key
    assert key is not None
    assert key.get_secret_value() == "from-the-environment-0123"


def test_everybody_is_served_only_where_that_is_asked_for(tmp_path: Path) -> None:
    assert "everybody who can reach port 8200" in install(tmp_path / "root", AUTH="none")
    config = tmp_path / "root/a0/usr/organizations/a2a_config.json"
    assert settings_of(read_orgfile(config)[0], config.parent).auth == "none"


def test_the_start_script_does_not_run_the_server_as_root(tmp_path: Path) -> None:
    install(tmp_path / "root", START="entrypoint")
    start = tmp_path / "root/a0/a2a_server_start.sh"
    assert subprocess.run(["sh", "-n", str(start)], check=False).returncode == 0
    assert "setpriv --reuid=a2a --regid=a2a --init-groups --no-new-privs" in start.read_text()


def test_what_an_operator_has_changed_stays(tmp_path: Path) -> None:
    folder = tmp_path / "root/a0/usr/organizations"
    folder.mkdir(parents=True)
    (folder / "a2a_config.json").write_text('{"port": 9000}')
    (folder / "active.json").write_text('{"org_name": "Ours"}')
    install(tmp_path / "root")
    assert (folder / "a2a_config.json").read_text() == '{"port": 9000}'
    assert (folder / "active.json").read_text() == '{"org_name": "Ours"}'


def test_a_key_is_made_where_one_is_asked_for_and_agentzero_named(tmp_path: Path) -> None:
    install(tmp_path / "root", AUTH="api_key", AGENT_ZERO_URL="http://zero:80", START="entrypoint")
    config = tmp_path / "root/a0/usr/organizations/a2a_config.json"
    assert config.stat().st_mode & 0o777 == 0o600
    file, _ = read_orgfile(config)
    assert len(file.authentication.api_key or "") > 30
    driver = driver_of(file, config.parent, settings_of(file, config.parent))
    assert isinstance(driver, AgentZeroDriver)
    assert driver.options.url == "http://zero:80"
    assert os.access(tmp_path / "root/a0/a2a_server_start.sh", os.X_OK)


@pytest.mark.parametrize(
    "more", [{"AGENT_ZERO_URL": 'http://x", "a": "'}, {"START": "cron"}, {"AUTH": "perhaps"}, {"API_KEY": 'a"b'}]
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        install(tmp_path / "root", **more)


def test_the_image_and_the_compose_file_expose_the_port() -> None:
    assert "EXPOSE 8200" in (DEPLOY / "Containerfile").read_text().splitlines()
    compose = yaml.safe_load((DEPLOY / "organisation" / "compose.yaml").read_text())
    (service,) = compose["services"].values()
    assert service["ports"] == ["8200:8200"]
    assert (service["build"]["dockerfile"], service["build"]["target"]) == ("deploy/Containerfile", "organisation")
    assert set(compose["volumes"]) == {service["volumes"][0].partition(":")[0]}
