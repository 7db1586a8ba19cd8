"""Hundreds of addresses of one IPv6 /64 take the connections of one client, not all. Runs in a
network namespace of its own, where every address of a prefix is local."""

import os
import socket
import subprocess
import sys

from lib.attack import HTTP1, Attack
from lib.world import World, ask, eventually, require

MAX, PER_CLIENT = 200, 32
GATEWAY = f"""
[gateway]
listen = "[fd00:1::1]:0"
trusted_proxies = []
[gateway.connections]
max = {MAX}
max_per_client = {PER_CLIENT}
[gateway.cache]
enabled = false
"""
# not in Python's own list
IPV6_FREEBIND = 78


def served(world, source):
    """A connection from this address, if it is served."""
    one = socket.socket(socket.AF_INET6)
    one.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    one.settimeout(20)
    try:
        one.bind((source, 0))
        one.connect(world.address("gateway"))
        if ask(one, b"GET", b"/healthz")[0] == 200:
            return one
    except (EOFError, OSError):
        pass
    one.close()
    return None


def one_prefix():
    with World(GATEWAY) as world:
        held = [served(world, f"fd00:1:0:7::{number:x}") for number in range(1, 400)]
        count = sum(one is not None for one in held)
        require(count == PER_CLIENT, f"one /64 holds {count} connections, not {PER_CLIENT}")
        for network in range(1, 5):
            other = [served(world, f"fd00:1:0:{network:x}0::{at:x}") for at in range(1, 5)]
            require(all(other), f"the /64 {network} is served")
        for one in filter(None, held):
            one.close()
        eventually("who has left makes room", lambda: served(world, "fd00:1:0:7::ffff"))


def addresses_of_a_prefix():
    if os.environ.get("PORTCULLIS_ATTACK_NAMESPACE"):
        one_prefix()
        return
    setup = ("ip link set lo up && ip -6 addr add fd00:1::1 dev lo"
             ' && ip -6 route add local fd00:1::/48 dev lo && exec "$@"')
    mapped = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--net", *mapped, "sh", "-c", setup, "sh", sys.executable,
               sys.argv[0], "many_addresses"]
    inside = {**os.environ, "PORTCULLIS_ATTACK_NAMESPACE": "1"}
    ended = subprocess.run(command, env=inside, stdout=subprocess.DEVNULL)
    require(ended.returncode == 0, "the attack in its namespace")


ATTACK = Attack(
    title="addresses without number",
    published="RFC 6177",
    over=(HTTP1,),
    checks=(addresses_of_a_prefix,),
    also="the connections of one client for all of a /64",
)
