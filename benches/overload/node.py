"""A node of known capacity: WORKERS calls at a time, SECONDS each, and a queue without bound.

    python3 node.py PORT WORKERS SECONDS

`GET /` returns the most calls that it has had since the last one: those that it works at, and
those that it queues.
"""

import asyncio
import json
import sys

BLOCK = {
    "status": "ACCEPTED_ON_L2",
    "block_hash": "0x44c",
    "parent_hash": "0x1",
    "block_number": 100,
    "new_root": "0x2",
    "timestamp": 100,
    "sequencer_address": "0x3",
    "transactions": [],
}
RESULTS = {
    "starknet_chainId": "0x534e5f4d41494e",
    "starknet_specVersion": "0.10.0",
    "starknet_blockNumber": 100,
}


class Node:
    def __init__(self, workers, seconds):
        self.free, self.seconds = asyncio.Semaphore(workers), seconds
        self.calls = self.most = 0

    async def result(self, method):
        if method != "starknet_call":
            return RESULTS.get(method, BLOCK)
        self.calls += 1
        self.most = max(self.most, self.calls)
        try:
            async with self.free:
                await asyncio.sleep(self.seconds)
        finally:
            self.calls -= 1
        return ["0x1"]

    async def answer(self, head, reader):
        if head.startswith(b"GET"):
            most, self.most = self.most, self.calls
            return {"most": most}
        lines = head.lower().split(b"\r\n")
        length = next(line for line in lines if line.startswith(b"content-length:"))
        call = json.loads(await reader.readexactly(int(length.split(b":")[1])))
        result = await self.result(call["method"])
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    async def serve(self, reader, writer):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                body = json.dumps(await self.answer(request, reader)).encode()
                writer.write(head % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main(port, workers, seconds):
    node = Node(int(workers), float(seconds))
    server = await asyncio.start_server(node.serve, "127.0.0.1", int(port), backlog=4096)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
