"""Fixtures of the tests here: the two URLs, and an account that reads here and writes there."""

import asyncio
import os
from dataclasses import dataclass

import aiohttp
from starknet_py.hash.address import compute_address
from starknet_py.hash.selector import get_selector_from_name
from starknet_py.net.client_models import Call
from starknet_py.net.full_node_client import FullNodeClient
from starknet_py.net.signer.stark_curve_signer import KeyPair

GATEWAY = os.environ["PORTCULLIS_GATEWAY"]
NODE = os.environ["PORTCULLIS_NODE"]

STRK = 0x4718F5A0FC34CC1AF16A1CDEE98FFB20C31F5CD61D6AB07201858F4287C938D
# OpenZeppelin account 1.0.0, declared on every starknet-devnet.
ACCOUNT_CLASS = 0x5B4B537EAA2399E3AA99C4E2E0208EBD6C71BC1467938CD52C798C601E43564
# The first account of `--seed 0`.
SEEDED = 0x64B48806902A367C8598F4F95C305E8C1A1ACBA5F082D294A43793113115691


class SplitClient(FullNodeClient):
    """How an application uses both: it reads through the gateway, and writes to the node."""

    def __init__(self):
        super().__init__(node_url=GATEWAY)
        self.writes = FullNodeClient(node_url=NODE)

    async def send_transaction(self, transaction):
        return await self.writes.send_transaction(transaction)

    async def deploy_account(self, transaction):
        return await self.writes.deploy_account(transaction)


gateway = FullNodeClient(node_url=GATEWAY)
node = FullNodeClient(node_url=NODE)


@dataclass
class FutureAccount:
    """A fresh key, and the address that follows from it. Funded, but not deployed."""

    keys: KeyPair
    address: int


def run(awaitable):
    """The tests are plain functions: one event loop for each call."""
    return asyncio.run(awaitable)


async def post(url, body):
    """One POST: the status and the JSON of the response."""
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json=body) as answer:
            return answer.status, await answer.json()


async def mint(address, amount=10**18):
    """Test money from the devnet. Returns the hash of the funding transaction."""
    params = {"address": hex(address), "amount": amount, "unit": "FRI"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "devnet_mint", "params": params}
    _, answer = await post(NODE, body)
    return int(answer["result"]["tx_hash"], 16)


async def funded_account():
    """An account that can be deployed."""
    keys = KeyPair.generate()
    address = compute_address(
        class_hash=ACCOUNT_CLASS,
        constructor_calldata=[keys.public_key],
        salt=keys.public_key,
    )
    await mint(address)
    return FutureAccount(keys, address)


def transfer(to, amount):
    """A transfer of `amount` STRK to `to`."""
    return Call(STRK, get_selector_from_name("transfer"), [to, amount, 0])


async def balance(client, address):
    """The STRK balance of `address`, read through `client`."""
    call = Call(STRK, get_selector_from_name("balance_of"), [address])
    low, high = await client.call_contract(call)
    return low + (high << 128)
