import pytest

from tests.packaging.distributions import ROOT, Distribution, Environment, build


@pytest.fixture(scope="session")
def parley(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(ROOT, tmp_path_factory.mktemp("parley-a2a"))


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(ROOT / "edge", tmp_path_factory.mktemp("parley-edge"))


@pytest.fixture(scope="session")
def core(parley: Distribution, edge: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Both distributions, and no extra."""
    environment = Environment(tmp_path_factory.mktemp("core") / "env")
    environment.install(parley.wheel, edge.wheel)
    return environment
