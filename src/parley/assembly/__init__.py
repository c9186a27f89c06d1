"""Parts of the whole that are put together by themselves; `app` puts them in their places."""
