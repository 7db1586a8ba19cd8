"""Each of the 13 methods, as starknet.py calls it: the gateway returns what the node returns."""

import pytest
from starknet_py.hash.selector import get_selector_from_name
from starknet_py.net.client_models import Call

from world import ACCOUNT_CLASS, SEEDED, STRK, gateway, mint, node, run


@pytest.fixture(scope="module", name="world")
def make_world():
    """The hash of a transaction, and the block that holds it."""
    transaction = run(mint(SEEDED))
    return {"hash": transaction, "block": run(node.get_block_with_tx_hashes("latest"))}


READS = {
    "specVersion": lambda c, w: c.spec_version(),
    "chainId": lambda c, w: c.get_chain_id(),
    "blockNumber": lambda c, w: c.get_block_number(),
    "getBlockWithTxHashes": lambda c, w: c.get_block_with_tx_hashes("latest"),
    "getBlockWithTxHashes by hash": lambda c, w: c.get_block_with_tx_hashes(
        block_hash=w["block"].block_hash
    ),
    "getBlockWithTxHashes by number": lambda c, w: c.get_block_with_tx_hashes(
        block_number=w["block"].block_number
    ),
    "getTransactionByHash": lambda c, w: c.get_transaction(w["hash"]),
    "getTransactionReceipt": lambda c, w: c.get_transaction_receipt(w["hash"]),
    "getTransactionStatus": lambda c, w: c.get_transaction_status(w["hash"]),
    "getClassHashAt": lambda c, w: c.get_class_hash_at(SEEDED),
    "getClass": lambda c, w: c.get_class_by_hash(ACCOUNT_CLASS),
    "getClassAt": lambda c, w: c.get_class_at(STRK, block_hash="latest"),
    "getNonce": lambda c, w: c.get_contract_nonce(SEEDED),
    "call": lambda c, w: c.call_contract(
        Call(STRK, get_selector_from_name("balance_of"), [SEEDED])
    ),
}


@pytest.mark.parametrize("name", READS)
def test_the_gateway_returns_what_the_node_returns(name, world):
    read = READS[name]
    assert run(read(gateway, world)) == run(read(node, world))
