"""An open loop: RATE different calls a second for SECONDS, from CLIENTS addresses at random, and
MODEST clients that make ten calls a minute each.

    python3 load.py PORT PATH RATE SECONDS CLIENTS MODEST
"""

import asyncio
import collections
import itertools
import json
import random
import sys
import time

NUMBERS = itertools.count(1)
# A call that takes longer is counted as lost.
PATIENCE = 10


class Load:
    def __init__(self, port, path):
        self.port, self.path = port, path
        self.answered, self.refused = [], []
        # answers before the end of the load
        self.in_time, self.ends_at = 0, 0.0
        self.ends, self.modest = collections.Counter(), collections.Counter()

    def request(self, client):
        call = {"contract_address": hex(next(NUMBERS)), "entry_point_selector": "0x2"}
        params = [{**call, "calldata": []}, "latest"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "starknet_call", "params": params}
        body = json.dumps(body)
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n"
            f"X-Forwarded-For: {client}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    async def exchange(self, client):
        """One call: how it ended."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self.request(client))
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(line for line in lines if line.startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(int(length.split(b":")[1])))
        finally:
            writer.close()
        if "result" in body:
            return "answered"
        return body["error"].get("data", {}).get("reason", "error")

    async def call(self, client, counter):
        start = time.monotonic()
        try:
            end = await asyncio.wait_for(self.exchange(client), PATIENCE)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            end = type(error).__name__
        took = time.monotonic() - start
        self.in_time += end == "answered" and start + took < self.ends_at
        (self.answered if end == "answered" else self.refused).append(took)
        counter[end] += 1

    async def modest_client(self, number):
        client = f"10.9.{number // 250}.{number % 250 + 1}"
        await asyncio.sleep(6 * random.random())
        while time.monotonic() < self.ends_at:
            await self.call(client, self.modest)
            await asyncio.sleep(6)

    async def run(self, rate, seconds, clients, modest):
        start = time.monotonic()
        self.ends_at = start + seconds
        tasks = [asyncio.create_task(self.modest_client(number)) for number in range(modest)]
        sent = 0
        while (elapsed := time.monotonic() - start) < seconds:
            while sent < elapsed * rate:
                number = random.randrange(clients)
                client = f"10.1.{number // 250}.{number % 250 + 1}"
                tasks.append(asyncio.create_task(self.call(client, self.ends)))
                sent += 1
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    def report(self, seconds):
        took = sorted(self.answered)
        return {
            "rate": self.in_time / seconds,
            "p50": quantile(took, 0.5),
            "p99": quantile(took, 0.99),
            "slowest_refusal": max(self.refused, default=0),
            "ends": self.ends,
            "modest": self.modest,
        }


def quantile(values, share):
    if not values:
        return None
    return values[min(len(values) - 1, int(len(values) * share))]


def main(port, path, rate, seconds, clients, modest):
    load = Load(int(port), path)
    asyncio.run(load.run(float(rate), float(seconds), int(clients), int(modest)))
    print(json.dumps(load.report(float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
