"""The manifests for Kubernetes: valid by the schemas of its API, and of one piece with the image and the settings."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.settings import Settings
from tests.deploy.test_files import IMAGE

PLACE = Path(__file__).parents[2] / "deploy" / "kubernetes"
MANIFESTS = sorted({*PLACE.glob("*.yaml")} - {PLACE / "kustomization.yaml"})
NAMES = {"app.kubernetes.io/name": "parley"}


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def manifest(name: str) -> Any:
    return documents(PLACE / f"{name}.yaml")[0]


@pytest.mark.parametrize("version", ["1.31", "1.34"])
@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_it_is_valid(file: Path, version: str) -> None:
    for document in documents(file):
        kubernetes_validate.validate(document, version, strict=True)


def test_kustomize_names_every_manifest_but_the_example_of_secrets() -> None:
    listed = manifest("kustomization")
    assert sorted(listed["resources"]) == [file.name for file in MANIFESTS if "example" not in file.name]
    for generator in listed["configMapGenerator"]:
        for one in generator["files"]:
            assert (PLACE / one.partition("=")[2]).is_file()
    assert not LoadedDefinitions(Sources((str(PLACE / "agents"),))).faults


def test_pods_run_what_the_image_has_as_its_user_and_write_nowhere_else() -> None:
    pod = manifest("deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = int(IMAGE.of("USER")[-1].partition(":")[0])
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (user, True)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert written == {"/data", "/tmp"}
    assert {f"PARLEY_{name.upper()}" for name in Settings.model_fields} >= {one["name"] for one in container["env"]}
    assert [port["containerPort"] for port in container["ports"]] == [8200, 8201]


def test_a_pod_has_time_to_hand_its_work_over() -> None:
    pod = manifest("deployment")["spec"]["template"]["spec"]
    env = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    needed = float(env["PARLEY_DRAIN_S"]) + Settings().cancel_grace_s + 2
    assert pod["terminationGracePeriodSeconds"] > needed
    ready = pod["containers"][0]["readinessProbe"]
    assert ready["httpGet"]["path"] == "/readyz"
    assert float(env["PARLEY_DRAIN_S"]) >= ready["periodSeconds"]


def test_everything_selects_the_same_pods() -> None:
    spec = manifest("deployment")["spec"]
    found = [
        spec["selector"]["matchLabels"],
        spec["template"]["metadata"]["labels"],
        manifest("service")["spec"]["selector"],
        manifest("disruptionbudget")["spec"]["selector"]["matchLabels"],
        manifest("networkpolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert found == [NAMES] * len(found)
    assert manifest("autoscaling")["spec"]["scaleTargetRef"]["name"] == manifest("deployment")["metadata"]["name"]


def test_secrets_are_referred_to_and_not_written_down() -> None:
    text = (PLACE / "deployment.yaml").read_text()
    example = {one["metadata"]["name"] for one in documents(PLACE / "secrets.example.yaml")}
    assert example == {"parley-environment", "parley-key"}
    assert all(name in text for name in example)
    assert "postgresql://" not in text
