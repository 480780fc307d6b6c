"""Audits: attacks on a claim, and what they prove about its epsilon."""

from typing import TYPE_CHECKING

from taut._base import surface
from taut.audit._attacks.attack import Evidence
from taut.audit._attacks.audit import audit_observations, audit_training
from taut.audit._attacks.crafted import Craft, crafted
from taut.audit._attacks.loops import audit_loop
from taut.audit._attacks.noise_checks import NoiseCheck
from taut.audit._attacks.result import AuditResult
from taut.audit._attacks.shipped_engine import audit_plan
from taut.audit._mechanisms.audit import audit_mechanism
from taut.audit._mechanisms.games import (
    MechanismGame,
    allocated_gaussian_game,
    gaussian_game,
    laplace_game,
    randomized_response_game,
    sampled_gaussian_game,
)
from taut.audit._mechanisms.noise_games import noise_game
from taut.audit._mechanisms.run_attack import RunAttack, attack_plan, simulated_epsilon
from taut.audit._one_run.audit import OneRunResult, audit_one_run
from taut.audit._one_run.canaries import OneRunScores, RunCanaries
from taut.audit._one_run.exposure import Exposure
from taut.audit._replay.replay import replay
from taut.audit._replay.result import ReplayedRelease, ReplayResult
from taut.audit._replay.wrapped_draws import recorded_generator
from taut.audit._replay.wrapped_functions import recorded
from taut.audit._sequential.audit import refute_loop, refute_plan, refute_training
from taut.audit._sequential.breaker import CircuitBreaker
from taut.audit._sequential.planning import runs_to_refute
from taut.audit._sequential.result import RunningCheck, SequentialResult
from taut.audit._settings.check import check_settings
from taut.audit._settings.result import CheckedSetting, SettingsCheck, SettingsReading
from taut.audit._statements.verify import Verdict, Verification, verify_statement

if TYPE_CHECKING:
    from taut.audit._replay.wrapped_torch import recorded_optimizer, recorded_torch

__all__ = [
    "AuditResult",
    "CheckedSetting",
    "CircuitBreaker",
    "Craft",
    "Evidence",
    "Exposure",
    "MechanismGame",
    "NoiseCheck",
    "OneRunResult",
    "OneRunScores",
    "ReplayResult",
    "ReplayedRelease",
    "RunAttack",
    "RunCanaries",
    "RunningCheck",
    "SequentialResult",
    "SettingsCheck",
    "SettingsReading",
    "Verdict",
    "Verification",
    "allocated_gaussian_game",
    "attack_plan",
    "audit_loop",
    "audit_mechanism",
    "audit_observations",
    "audit_one_run",
    "audit_plan",
    "audit_training",
    "check_settings",
    "crafted",
    "gaussian_game",
    "laplace_game",
    "noise_game",
    "randomized_response_game",
    "recorded",
    "recorded_generator",
    "recorded_optimizer",
    "recorded_torch",
    "refute_loop",
    "refute_plan",
    "refute_training",
    "replay",
    "runs_to_refute",
    "sampled_gaussian_game",
    "simulated_epsilon",
    "verify_statement",
]

surface.claim(
    globals(),
    late={"taut.audit._replay.wrapped_torch": ("recorded_optimizer", "recorded_torch")},
)
