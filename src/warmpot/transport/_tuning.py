"""Constants of the entropic solver, shared by its numba and its torch form."""

from __future__ import annotations

__all__ = ["LOG_LIMIT", "LOG_MAX", "LOG_MIN", "LONGEST_MOVE", "NEWTON_MOVE", "SINGULAR_MOVE", "STALL_LOOKS", "SWEEPS"]

SWEEPS = 4
"""Sweeps between two looks at the residual."""
LOG_LIMIT = 100.0
"""Potentials are absorbed into the kernel when the change since has drifted beyond exp(+-this)."""
LOG_MIN, LOG_MAX = -690.0, 690.0
"""exp stays clear of denormal numbers and of overflow between these."""
LONGEST_MOVE = 500.0
"""Longest Newton step in any potential, in units of eps: potentials that are free to shift together have far to go."""
NEWTON_MOVE = 10.0
"""Longest second try, where the first did not help."""
SINGULAR_MOVE = 1e3
"""A full Newton step longer than this says that the system is singular."""
STALL_LOOKS = 60
"""Looks without 10 % progress before giving up."""
