"""Parts of the server that are put together apart from `app`, which knows them all."""
