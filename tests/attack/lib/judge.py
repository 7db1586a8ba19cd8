"""Judges a case by its bounds: the memory of the process, the wait of honest clients meanwhile, and
the memory that is left afterwards.

The program runs for this case alone. The attacker has a core of its own, the honest clients another;
the program uses both, as it is installed. Memory is judged at its highest. Waits are judged in the
best of many windows: a busy machine delays some of them, an attack that works delays all. In a build
without optimisation the bound is proportional to the CPU time of a request before the attack. Nothing
is judged before the attack has reached its size."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from .attack import HTTP1, HTTP2, MIB
from .frames import Http2, get, request
from .world import PROGRAM, TLS, Failed, World, require

FOLDER = Path(__file__).parent.parent
# A window of honest requests; one in a hundred may wait longer than the bound.
WINDOW, WINDOWS = 300, 20
# Requests before the attack, so that their memory is not counted as the attack's.
WARM_UP = 200
# CPU seconds of one honest request in an optimised build on a quiet machine. A build without
# optimisation may let clients wait as many times longer as its requests take.
CPU_OF_A_REQUEST = 0.000_100
# How many times larger memory may be in a build without optimisation: its futures keep variables
# that an optimised build has in registers or drops.
SIZE = 1.5
# Seconds after which the memory of an attack has to be free again.
MINUTE = 60


@dataclass
class Measured:
    """The measurements of a case, in bytes and seconds."""

    memory: int
    p99: float


def is_optimised(program):
    """Whether this build is. Cargo puts builds without optimisation into a folder `debug`."""
    return Path(program).resolve().parent.name != "debug"


def bound_of(case, program, slowness):
    """The bound of a case for this build, which takes `slowness` times as long for a request."""
    bound = case.bound
    if is_optimised(program):
        return bound
    return replace(bound, p99=bound.p99 * max(1, slowness), memory=bound.memory * SIZE)


def exceeded(measured, bound, addresses):
    """The bounds that do not hold, in words."""
    found = []
    memory = bound.memory * addresses
    if measured.memory > memory:
        found.append(f"{mib(measured.memory)} MiB more, over {mib(memory)}")
    if measured.p99 > bound.p99:
        found.append(f"honest clients wait {ms(measured.p99)} ms, over {ms(bound.p99)}")
    return found


def mib(size):
    return f"{size / MIB:.1f}"


def ms(seconds):
    return f"{seconds * 1000:.0f}"


class Helper:
    """A process of `lib`, with lines as its input and its output."""

    def __init__(self, module, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-m", f"lib.{module}", *map(str, arguments)],
            cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def line(self):
        line = self.process.stdout.readline()
        require(line, f"{self.process.args[3]} ended")
        return line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def configuration(case):
    trusted = '["127.0.0.1/32"]' if case.is_proxied else "[]"
    tls = "" if case.over == HTTP1 else TLS.format("gateway")
    return f"""
[gateway]
listen = "127.0.0.1:0"
trusted_proxies = {trusted}
{case.gateway}
[gateway.cache]
enabled = false
[gateway.connections]
{case.connections}
{tls}
"""


class Trial:
    """A program under attack. It runs until the memory that the attack has left is judged."""

    def __init__(self, case, attack, number):
        self.case, self.attack, self.number = case, attack, number
        self.bound = None
        self.world = World(configuration(case))
        if case.node:
            self.world.node.answer = case.node
        self.ended = None

    def run(self):
        """The attack; returns what was measured."""
        self.world.__enter__()
        world, case = self.world, self.case
        host, port = world.address("gateway")
        security = "plain" if case.over == HTTP1 else "secure"
        with Helper("honest", host, port, security) as honest:
            self.warm_up(honest)
            before = world.resident()
            arguments = (self.attack, self.number, host, port)
            with Helper("attacker", *arguments) as attacker:
                p99, counts = self.meet(attacker, honest)
        self.before, self.ended = before, time.monotonic()
        if case.check:
            case.check(world, counts)
        self.counts = counts
        return Measured(world.peak() - before, p99)

    def warm_up(self, honest):
        before = self.world.cpu()
        honest.send(WARM_UP)
        window = json.loads(honest.line())
        require(not window["failed"], f"before the attack, honest requests are {window['failed']}")
        self.undisturbed = window["p99"]
        used = (self.world.cpu() - before) / WARM_UP
        self.bound = bound_of(self.case, PROGRAM, slowness=used / CPU_OF_A_REQUEST)
        if self.case.over == HTTP2:
            client = Http2(self.world.secure("gateway"))
            client.send(b"".join(request(stream, get()) for stream in client.streams(20)))
            client.ping()
            require(client.settled(), "before the attack, HTTP/2 is served")
            client.close()

    def meet(self, attacker, honest):
        """The best wait of honest clients under the attack, and the attacker's counts."""
        line = attacker.line()
        require(line == "under way\n", f"the attack does not reach its size: {line}")
        waits, failures = [], []
        for _ in range(WINDOWS):
            honest.send(WINDOW)
            window = json.loads(honest.line())
            if window["failed"]:
                failures.append(window["failed"])
            waits.append(window["p99"])
            if waits[-1] <= self.bound.p99 and not window["failed"]:
                break
        require(attacker.process.poll() is None, "the attack goes on all the time")
        require(len(failures) < len(waits), f"honest requests fail in each window: {failures}")
        attacker.process.stdin.close()
        return min(waits), json.loads(attacker.line())

    def more(self):
        """Bytes by which the program is larger than before the attack."""
        return self.world.resident() - self.before

    def is_small(self):
        return self.more() <= self.case.bound.left

    def left(self):
        """Bytes by which the program is larger, once that is within the bound or a minute over."""
        while not self.is_small() and time.monotonic() - self.ended < MINUTE:
            time.sleep(0.2)
        return self.more()

    def end(self, failed):
        self.world.__exit__(Failed if failed else None)
