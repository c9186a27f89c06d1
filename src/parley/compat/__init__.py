"""Other people's entry points, mapped onto ours."""
