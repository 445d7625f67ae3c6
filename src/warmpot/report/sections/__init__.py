"""The sections of the page of a run: each function takes a `RunView` and returns a `Section`, or None."""

__all__: list[str] = []
