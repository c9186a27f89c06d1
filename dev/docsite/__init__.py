"""The site: how `make docs` builds and checks it."""
