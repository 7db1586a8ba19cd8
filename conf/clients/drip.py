"""A drip from the relay, repeated until its outcome is known; README.md next to this file has the rule.

Arguments: identity, recipient, public key. RELAY and TOKEN_FILE are in the environment.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

RELAY = os.environ.get("RELAY", "http://127.0.0.1:8081")
TOKEN = Path(os.environ.get("TOKEN_FILE", ".portcullis/relay.token")).read_text().strip()
# After this many attempts the last answer stands.
ATTEMPTS = 30
# A longer Retry-After is left to the caller.
PATIENCE = 60


def send(path, body, key):
    """One request: its status, its Retry-After, and the body of the answer."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    headers["Idempotency-Key"] = key
    request = urllib.request.Request(RELAY + path, json.dumps(body).encode(), headers)
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as refusal:
        answer = refusal
    with answer:
        return answer.status, answer.headers["Retry-After"], json.load(answer)


def outcome(path, body, key):
    """Sends an operation with its key until the answer is final."""
    for attempt in range(1, ATTEMPTS + 1):
        status, after, answer = send(path, body, key)
        wait = int(after) if after else 1 if status in (202, 504) else 0
        if not 0 < wait <= PATIENCE or attempt == ATTEMPTS:
            return status, answer
        time.sleep(wait)


if __name__ == "__main__":
    identity, recipient, public_key = sys.argv[1:]
    drip = {"identity": identity, "recipient": recipient, "public_key": public_key}
    status, answer = outcome("/faucet-drip", drip, f"welcome-{identity}")
    said = answer["transaction_hash"] if status < 300 else answer["error"]["reason"]
    print(status, said)
