"""Audits: attacks on a claim, and what they prove about its epsilon."""

from taut.audit._attack import Evidence
from taut.audit._audit import audit_observations, audit_training
from taut.audit._crafted import Craft, crafted
from taut.audit._engine import audit_plan
from taut.audit._loops import audit_loop
from taut.audit._noise_checks import NoiseCheck
from taut.audit._result import AuditResult
from taut.audit._verification import Verdict, Verification, verify_statement

__all__ = [
    "AuditResult",
    "Craft",
    "Evidence",
    "NoiseCheck",
    "Verdict",
    "Verification",
    "audit_loop",
    "audit_observations",
    "audit_plan",
    "audit_training",
    "crafted",
    "verify_statement",
]
