"""Constants of the entropic solver, shared by its numba and its torch form."""

from __future__ import annotations

__all__ = ["LOG_LIMIT", "LOG_MAX", "LOG_MIN", "LONGEST_MOVE", "NEWTON_MOVE", "SINGULAR_MOVE", "STALL_CHECKS", "SWEEPS"]

SWEEPS = 4
"""Sweeps between two evaluations of the residual."""
LOG_LIMIT = 100.0
"""Potentials are absorbed into the kernel when the change since has drifted beyond exp(+-this)."""
LOG_MIN, LOG_MAX = -690.0, 690.0
"""Between these, exp is neither denormal nor infinite."""
LONGEST_MOVE = 500.0
"""Longest Newton step in any potential, in units of eps: potentials that can shift together may have to move far."""
NEWTON_MOVE = 10.0
"""Longest second attempt, where the first did not help."""
SINGULAR_MOVE = 1e3
"""A full Newton step longer than this means that the system is singular."""
STALL_CHECKS = 60
"""Evaluations without 10 % progress before giving up."""
