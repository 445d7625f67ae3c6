"""How a solve ended, and what to do about it."""

from __future__ import annotations

from enum import Enum

__all__ = ["Status"]


class Status(Enum):
    """Outcome of a solve; the value is the remedy, ready to be shown to a user.

    Examples
    --------
    >>> Status.OPTIMAL.ok, Status.MAX_ITER.ok
    (True, False)
    >>> print(Status.STALLED.remedy)
    float64 can go no further at this eps: raise eps, loosen tol, or pass eps=None for the exact solver.
    """

    OPTIMAL = "optimal: gap and residuals are within the tolerance."
    MAX_ITER = "max_iter was reached before tol: raise max_iter, loosen tol, or raise eps."
    STALLED = "float64 can go no further at this eps: raise eps, loosen tol, or pass eps=None for the exact solver."

    ROUNDING = "rounding of the costs leaves a gap above tol: loosen tol, or bring the costs closer to one scale."

    @property
    def ok(self) -> bool:
        """Whether the solution meets its tolerance."""
        return self is Status.OPTIMAL

    @property
    def remedy(self) -> str:
        """What a user can do."""
        return str(self.value)
