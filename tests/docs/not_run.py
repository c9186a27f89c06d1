"""Blocks of pages that no test runs: the page, the first line of the block, and the reason."""

NOT_RUN = {
    (
        "backup.md",
        'pg_dump --format=custom --file=parley.dump "$PARLEY_POSTGRES_URL"',
    ): "the database server and the bucket are yours",
    (
        "chaos.md",
        "make chaos                       # ten minutes; SECONDS=60 and SEED=7 change that",
    ): "it takes minutes; tests/dev/chaos does one of them",
    (
        "chaos.md",
        "make simulate                    # kept seeds, then fresh ones, for a minute; SECONDS=120 changes that",
    ): "it takes a minute; tests/dev/simulation plays fixed and fresh seeds",
    (
        "deploy.md",
        "docker build -f deploy/Containerfile -t parley .                          # with Docker or Podman",
    ): "make image-check builds the image and starts it",
    ("deploy.md", "cd deploy"): "there is no container engine where the tests run",
    (
        "edge.md",
        "pip install parley-edge             # from a copy of this repository: pip install ./edge",
    ): "it is installed already, from the folder edge",
    (
        "edge.md",
        "a2a-runtime pair --api-base https://parley.example.com --code 7Q2M-X4KD-93PA-HN5T",
    ): "the code is made up; the tutorial about agents behind NAT pairs with a real one",
    ("edge.md", "a2a-runtime start --command 'python3 answer.py'"): "it needs a paired profile",
    ("howto/other-frameworks.md", "# adk_agent.py"): "tests/examples/test_frameworks.py serves it in its environment",
    ("howto/other-frameworks.md", "# crew_agent.py"): "tests/examples/test_frameworks.py serves it in its environment",
    (
        "howto/other-frameworks.md",
        "python -m venv crew && crew/bin/pip install parley-a2a crewai",
    ): "make environments installs it",
    ("howto/postgresql.md", "createuser parley --pwprompt"): "it needs a superuser of your database server",
    (
        "index.md",
        "pip install parley-a2a       # or, in a copy of the repository: pip install .",
    ): "packages are built and installed by tests/packaging",
    (
        "install.md",
        "pip install parley-a2a                      # Python 3.11 or newer",
    ): "packages are built and installed by tests/packaging",
    (
        "install.md",
        "$ PARLEY_STORE=postgres PARLEY_POSTGRES_URL=postgresql://db/parley parley serve agents.py",
    ): "here every extra is installed",
    ("releases/0.2.0.md", "pip install --upgrade parley-a2a"): "packages are built and installed by tests/packaging",
    ("releases/0.1.0.md", "pip install parley-a2a"): "packages are built and installed by tests/packaging",
    (
        "replicas.md",
        "parley serve --workers auto          # or a number; the setting workers",
    ): "the tests start workers on a database of their own",
    ("replicas.md", "pip install 'parley-a2a[postgres]'"): "it is installed already",
    (
        "sdk.md",
        "make sdk      # write the types, install the compiler, build sdk/typescript/dist",
    ): "tests/sdk builds it, and asks npm once",
    ("sign-in.md", "parley sessions list"): "nobody has signed in where the tests run; tests/sign_in revokes sessions",
    (
        "sign-in.md",
        "parley login --url https://parley.example.com",
    ): "the provider is yours; tests/sign_in signs in at one from npm",
    ("tutorials/behind-nat.md", "pip install parley-edge"): "it is installed already, from the folder edge",
    (
        "tutorials/online.md",
        "python3 -m venv .venv && . .venv/bin/activate",
    ): "it is installed already",
}
