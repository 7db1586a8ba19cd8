"""Schemathesis hooks: the relay's token and its rate limit on failed authentication, and positions of
the chain that it has reached."""

import ipaddress
import itertools
import os
import re

import schemathesis
from requests.auth import AuthBase

CLIENTS = (ipaddress.ip_address("10.0.0.1") + count for count in itertools.count())


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Makes each request another client's, as a proxy reports it, and its epoch one of long ago."""
    case.headers = {**(case.headers or {}), "X-Forwarded-For": str(next(CLIENTS))}
    position = str(case.headers.get("X-Chain-Position", ""))
    if re.fullmatch(r"[0-9]{1,19}\.[0-9]{1,19}", position):
        case.headers["X-Chain-Position"] = f"1{position[position.index('.'):]}"


class Bearer(AuthBase):
    """Adds the token where it is required."""

    def __call__(self, request):
        request.headers["Authorization"] = f"Bearer {os.environ['RELAY_TOKEN']}"
        return request


if "RELAY_TOKEN" in os.environ:
    schemathesis.auth.set_from_requests(Bearer())
