"""Every skill that the card of an organisation shows can be asked for, by its name and by its id."""

import json
from pathlib import Path

import pytest

from parley.client import Client, Json
from parley.telemetry import attach
from tests.drivers.agentzero.conftest import parley
from tests.drivers.agentzero.server import agent_zero
from tests.drivers.conftest import send
from tests.drivers.org.test_driver import house, made, own, plan, script, statuses
from tests.orgkernel.organisations import ACTIVE, BUGFIX, role, write

DOMAINS = [
    "bugfix", "log_analysis", "git_ops", "docker_ops", "dependency_mgmt", "osint", "api_integration", "analysis",
    "codegen",
]  # fmt: skip
TAXONOMY: Json = {
    "_meta": {"version": "1.2.0"},
    "domains": {
        **{id_: {"triggers": [f"{id_.replace('_', ' ')} please"], "slots": {}} for id_ in DOMAINS},
        "conversational": {"triggers": ["hello"]},
    },
}


def flow(name: str, domain: str, *steps: str, threshold: int = 2) -> Json:
    made = plan(*({"name": step} for step in steps), name=name, domains=[domain], trigger_threshold=threshold)
    return {**made, "triggers": [f"{domain} alpha", f"{domain} beta"]}


PLANS = {
    "bugfix_workflow": BUGFIX,
    "git_feature_branch": flow("Git Feature Branch", "git_ops", "Create the branch", "Commit the work"),
    "git_merge_pr": flow("Git Merge / Pull Request", "git_ops", "Check for conflicts", "Merge the branch"),
    "docker_build_deploy": flow("Docker Build and Deploy", "docker_ops", "Build the image", "Run the container"),
    "codegen_module": flow("Code Generation — New Module", "codegen", "Scaffold the module", "Write the tests"),
    "api_integration": flow("API Integration", "api_integration", "Read the documentation", "Call the API"),
    "dependency_update": flow("Dependency Update", "dependency_mgmt", "List what is out of date", threshold=1),
}


def large(folder: Path, *, taxonomy: bool) -> Path:
    """An organisation in the shape of the origin's: several workflows in a domain, and domains without any."""
    write(folder, "active.json", {**ACTIVE, "hierarchy": {"co": {}, "specialist": {}}, "domain_routing": {}})
    write(folder, "roles/co.json", role("co", "commander", DOMAINS))
    write(folder, "roles/specialist.json", role("specialist", "specialist", DOMAINS, list(PLANS)))
    write(folder, "workflows.json", {"plans": PLANS})
    if taxonomy:
        write(folder, "slot_taxonomy.json", TAXONOMY)
    return folder


async def activity(client: Client, folder: Path, said: str) -> Json:
    await send(client, said)
    return json.loads((folder / "reports" / "specialist_latest.json").read_text())["activity"]


@pytest.mark.parametrize("taxonomy", [False, True])
async def test_every_skill_routes_by_its_name_and_by_its_id(tmp_path: Path, taxonomy: bool) -> None:
    folder = large(tmp_path / "org", taxonomy=taxonomy)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        skills = (await client.card())["skills"]
        for skill in skills:
            named = (
                skill["name"],
                skill["id"],
                f"{skill['name']}: the bug in the analysis of git_x",
                f"Use {skill['id']}",
            )
            for said in named:
                found = await activity(client, folder, said)
                assert found["bst_domain"] in skill["tags"], (said, found)
                if skill["id"] in PLANS:
                    assert found["htn_plan"] == PLANS[skill["id"]]["name"], (said, found)


async def test_the_card_has_a_skill_for_each_domain_and_workflow_skills_beside(tmp_path: Path) -> None:
    folder = large(tmp_path / "org", taxonomy=False)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        skills = {one["id"]: one for one in (await client.card())["skills"]}
    assert set(skills) == {*DOMAINS, "git_feature_branch", "git_merge_pr"}
    assert {id_: skills[id_]["name"] for id_ in ("git_ops", "osint", "bugfix", "log_analysis", "git_merge_pr")} == {
        "git_ops": "Git operations", "osint": "OSINT", "bugfix": "Bug Fix", "log_analysis": "Log analysis",
        "git_merge_pr": "Git Merge / Pull Request",
    }  # fmt: skip
    assert skills["dependency_mgmt"]["name"] == "Dependency Update"
    assert skills["bugfix"]["description"] == (
        "Reproduce the bug, isolate the cause, implement the fix, run the tests, review the change. "
        "Done by: Specialist, Co."
    )
    assert skills["git_ops"]["description"] == (
        "Git Feature Branch, Git Merge / Pull Request. Done by: Specialist, Co."
    )
    assert skills["git_feature_branch"]["description"] == "Create the branch, commit the work. Done by: Specialist, Co."
    assert skills["osint"]["description"] == "OSINT. Done by: Specialist, Co."


async def test_a_workflow_without_a_name_is_shown_in_words(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", "print('ok')"))
    library = json.loads((folder / "workflows.json").read_text())
    del library["plans"]["bugfix_workflow"]["name"]
    write(folder, "workflows.json", library)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        said, task = await statuses(client, "Fix the bug")
    assert said[0].startswith("Bugfix Workflow: running tool_0.py (step 1/1, 0% complete)")
    assert "response" in made(task)


def installed(home: Path) -> tuple[Path, Path]:
    """The organisation and the library where the kernel inside Agent-Zero keeps them."""
    folder = large(home / "usr" / "organizations", taxonomy=False)
    library = home / "python" / "extensions" / "before_main_llm_call" / "htn_plan_library.json"
    library.parent.mkdir(parents=True)
    (folder / "workflows.json").rename(library)
    return folder, library


async def test_the_library_is_found_where_the_kernel_keeps_it(tmp_path: Path) -> None:
    folder, _ = installed(tmp_path / "a0")
    async with house(tmp_path, folder=str(folder)) as (_, client):
        assert "git_merge_pr" in [one["id"] for one in (await client.card())["skills"]]
        assert (await activity(client, folder, "Git Merge / Pull Request"))["htn_plan"] == "Git Merge / Pull Request"


async def test_agent_zeros_card_has_the_library_that_the_kernel_keeps(tmp_path: Path) -> None:
    folder, _ = installed(tmp_path / "a0")
    async with agent_zero() as zero, parley(tmp_path / "data", zero, organisation=str(folder)) as (_, client):
        assert "git_merge_pr" in [one["id"] for one in (await client.card())["skills"]]


async def test_without_a_library_one_line_says_so(tmp_path: Path) -> None:
    folder, library = installed(tmp_path / "a0")
    library.unlink()
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(fields["message"]) if name == "org.problem" else None)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        assert [one["id"] for one in (await client.card())["skills"]] == DOMAINS
    detach()
    (line,) = told
    assert "neither workflows.json nor htn_plan_library.json was found" in line
    assert "plan_library_path" in line
