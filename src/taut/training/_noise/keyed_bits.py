"""Bits that a secret key and the number of a step decide, so that noise can be drawn again."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import dataclass, replace
from typing import Any, Never

from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments

__all__ = ["KEY_BYTES", "KeyedBits", "NoiseKeys", "SessionKey", "new_session_key"]

KEY_BYTES = 32
_NONCE_BYTES = 12  # beside the four of the block counter, as ChaCha20 has them
CHACHA20, SHAKE256 = "ChaCha20", "SHAKE256"


@dataclass(frozen=True, repr=False)
class SessionKey:
    """The key of the noise that one session of a run draws, from a step on.

    Attributes:
        begins: number of the first step whose noise it makes.
        key: secret bytes.
        cipher: name of the function that makes bits of it.
        secure: whether nobody can guess the key.
    """

    begins: int
    key: bytes
    cipher: str
    secure: bool = True

    def __repr__(self) -> str:
        return f"SessionKey(begins={self.begins})"  # what is printed must not hold the key

    def __reduce__(self) -> Never:
        raise TypeError("a key of noise cannot be copied or pickled: whoever has it has the noise")


def new_session_key(source: RandomSource, step: int) -> SessionKey:
    """Return the key of a session that begins with a step; for a seed always the same."""
    cipher = SHAKE256 if _ciphers() is None else CHACHA20
    if isinstance(source, SeededForExperiments):
        key = hashlib.sha256(f"taut noise {source.seed}".encode()).digest()
    else:
        key = source.bytes(KEY_BYTES)
    return SessionKey(step, key, cipher, source.secure)


@dataclass(frozen=True)
class NoiseKeys:
    """The keys of all sessions of a run, in their order."""

    sessions: tuple[SessionKey, ...]

    def bits(self, step: int) -> KeyedBits:
        """Return the bits of a step's noise, from their beginning."""
        for session in reversed(self.sessions):
            if session.begins <= step:
                return KeyedBits(session, step)
        raise UnsoundConfiguration(f"no key is known for the noise of step {step}")

    @property
    def commitment(self) -> str:
        """A hash that ties the keys to a ledger, and tells nothing of them: it may be published."""
        content = hashlib.sha256(b"taut noise commitment")
        for session in self.sessions:
            content.update(session.begins.to_bytes(8, "little") + session.key)
            content.update(hashlib.sha256(session.cipher.encode()).digest())
        return content.hexdigest()

    def follow(self, commitment: str) -> bool:
        """Return whether all keys of a commitment are here, as the first ones."""
        return any(
            NoiseKeys(self.sessions[:count]).commitment == commitment
            for count in range(1, len(self.sessions) + 1)
        )

    @property
    def of_batches(self) -> SessionKey:
        """The key of secret batches: one for the whole run, and of no use for its noise."""
        first = min(self.sessions, key=lambda session: session.begins)
        if first.begins:
            raise UnsoundConfiguration("no key is known for the batches of the run")
        return replace(first, key=hashlib.sha256(b"taut batches" + first.key).digest())


class KeyedBits(RandomSource):
    """The bits of one step: ChaCha20 with the step as its nonce, or SHAKE256 without that package.

    Args:
        session: key of the session that the step belongs to.
        step: number of the step; no two steps share bits.
    """

    secure = True

    def __init__(self, session: SessionKey, step: int) -> None:
        self._session, self._step, self._calls = session, step, 0
        self._fill = None
        if session.cipher == CHACHA20:
            ciphers: Any = _ciphers()
            if ciphers is None:
                raise UnsoundConfiguration(
                    "the noise of this run was drawn with ChaCha20, which takes the package "
                    "'cryptography'; install it to go on"
                )
            nonce = bytes(4) + step.to_bytes(_NONCE_BYTES, "little")
            algorithm = ciphers.algorithms.ChaCha20(session.key, nonce)
            self._fill = ciphers.Cipher(algorithm, mode=None).encryptor().update

    def bytes(self, n: int) -> bytes:
        """Return the next ``n`` bytes of the step."""
        if self._fill is not None:
            stream: bytes = self._fill(bytes(n))
            return stream
        self._calls += 1
        place = self._step.to_bytes(8, "little") + self._calls.to_bytes(8, "little")
        return hashlib.shake_256(self._session.key + place).digest(n)

    def __reduce__(self) -> Never:
        raise TypeError("bits of a step cannot be copied: they would repeat")


def _ciphers() -> object | None:
    try:
        return importlib.import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError:
        return None
