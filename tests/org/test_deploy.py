"""What is installed, and what an image would hold, as far as that shows without a container."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from parley.compat.organisation import driver_of, settings_of
from parley.compat.orgfile import read_orgfile
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
    assert settings_of(file, config.parent).auth == "none"
    assert json.loads((config.parent / "active.json").read_text())["org_id"] == "software_dev"
    unit = (prefix / "etc/systemd/system/a2a-server.service").read_text()
    assert "-m a2a_server.run --config /a0/usr/organizations/a2a_config.json" in unit
    before = contents(prefix)
    said = install(prefix)
    assert contents(prefix) == before
    assert "stays as it is" in said


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


@pytest.mark.parametrize("more", [{"AGENT_ZERO_URL": 'http://x", "a": "'}, {"START": "cron"}, {"AUTH": "perhaps"}])
def test_what_makes_no_sense_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        install(tmp_path / "root", **more)


def test_the_image_and_the_compose_file_expose_the_port() -> None:
    lines = (DEPLOY / "organisation" / "Dockerfile").read_text().splitlines()
    assert "EXPOSE 8200" in lines
    compose = yaml.safe_load((DEPLOY / "organisation" / "compose.yaml").read_text())
    (service,) = compose["services"].values()
    assert service["ports"] == ["8200:8200"]
    assert service["build"]["dockerfile"] == "deploy/organisation/Dockerfile"
    assert set(compose["volumes"]) == {service["volumes"][0].partition(":")[0]}
