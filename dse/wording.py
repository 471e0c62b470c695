"""Words that messages share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def allowed(found: object, names: Iterable[str]) -> str:
    """`did you mean ...? allowed: ...` for a name that is not among `names`."""
    known = sorted(names)
    near = get_close_matches(str(found), known, n=1, cutoff=0.5)
    return (f"did you mean {near[0]!r}? " if near else "") + f"allowed: {', '.join(known) or 'none'}"
