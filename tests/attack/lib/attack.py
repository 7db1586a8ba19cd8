"""The declaration of an attack: where it was published, its cases, and their bounds.

`judge` runs a case in a process of its own. A check runs in the judge's process and requires what
must hold by itself."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

MIB = 1 << 20
IS_LONG = "PORTCULLIS_TEST_LONG" in os.environ

# The protocols of cases.
HTTP1, TLS1, HTTP2 = "HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2"


def scale(quick, long):
    """A count of the attack, for `tests/run` and for `tests/run long`."""
    return long if IS_LONG else quick


@dataclass(frozen=True)
class Bound:
    """The limits of a case, the same for all attacks unless a file says why not."""

    # Bytes by which the process may grow for each attacking address.
    memory: int = 16 * MIB
    # Seconds that an honest client on another address waits, for 99 of 100 requests.
    p99: float = 0.030
    # Bytes by which the process may be larger a minute later.
    left: int = 16 * MIB


@dataclass(frozen=True)
class Case:
    """One form of an attack. `run` is called with an `Attacker` and goes on until it is stopped;
    `least` are the counts at which the attack has reached its size, and is judged."""

    name: str
    over: str
    run: Callable
    least: dict
    addresses: int = 1
    bound: Bound = Bound()
    # In addition to the gateway's own section, `[gateway.connections]` in front.
    connections: str = ""
    gateway: str = ""
    # The program trusts the peer's X-Forwarded-For.
    is_proxied: bool = False
    # The node's answers, in place of `world.node_answer`.
    node: Callable | None = None
    # Left to `tests/run long`: another form of it says enough.
    is_long: bool = False
    # Called with the world and the attacker's counts at the end of the attack.
    check: Callable | None = None


@dataclass(frozen=True)
class Attack:
    """An attack as the table of SECURITY.md has it."""

    title: str
    published: str
    cases: tuple[Case, ...] = ()
    # Functions without arguments, and their bounds in words.
    checks: tuple[Callable, ...] = ()
    also: str = ""
    over: tuple[str, ...] = field(default=())

    def protocols(self):
        used = self.over or tuple(case.over for case in self.cases)
        return [name for name in (HTTP1, TLS1, HTTP2) if name in used]

    def bounds(self):
        """The bounds in words: of the cases, "usual" if all are `Bound()`, then of the checks."""
        texts = []
        if self.cases and all(case.bound == Bound() for case in self.cases):
            texts.append("usual")
        elif self.cases:
            memory = sorted({case.bound.memory for case in self.cases})
            sizes = " or ".join(f"{size // MIB}" for size in memory)
            p99 = max(case.bound.p99 for case in self.cases)
            left = max(case.bound.left for case in self.cases)
            texts.append(f"{sizes} MiB, {p99 * 1000:.0f} ms, {left // MIB} MiB")
        if self.also:
            texts.append(self.also)
        return "; ".join(texts)
