"""An account's life cycle: deploy it, pay with it, read it back through the gateway."""

import pytest
from starknet_py.net.account.account import Account
from starknet_py.net.client_models import TransactionExecutionStatus

from world import (
    ACCOUNT_CLASS,
    SplitClient,
    balance,
    funded_account,
    gateway,
    node,
    run,
    transfer,
)

RECEIVER = 0xCAFE


@pytest.fixture(scope="module", name="account")
def deployed_account():
    """Deployed with fees that were estimated through the gateway; tip 0 is the default."""

    async def deploy():
        future = await funded_account()
        deployed = await Account.deploy_account_v3(
            address=future.address,
            class_hash=ACCOUNT_CLASS,
            salt=future.keys.public_key,
            key_pair=future.keys,
            client=SplitClient(),
            auto_estimate=True,
        )
        await gateway.wait_for_tx(deployed.hash, check_interval=0.1)
        return deployed.account

    return run(deploy())


def test_the_deployed_account_has_its_class_and_its_nonce(account):
    assert run(gateway.get_class_hash_at(account.address)) == ACCOUNT_CLASS
    assert run(account.get_nonce()) == 1


def test_the_account_pays_and_the_gateway_shows_the_transfer(account):
    async def pay():
        before = await balance(gateway, RECEIVER)
        sent = await account.execute_v3(calls=transfer(RECEIVER, 7), auto_estimate=True)
        receipt = await gateway.wait_for_tx(sent.transaction_hash, check_interval=0.1)
        assert receipt.execution_status == TransactionExecutionStatus.SUCCEEDED
        assert await balance(gateway, RECEIVER) == before + 7
        return sent.transaction_hash

    sent = run(pay())
    assert run(gateway.get_transaction(sent)) == run(node.get_transaction(sent))


def test_a_fee_is_estimated_as_the_node_estimates_it(account):
    async def estimate():
        signed = await account.sign_invoke_v3(transfer(RECEIVER, 1), auto_estimate=True)
        query = await account.sign_for_fee_estimate(signed)
        for skip in (False, True):
            ours = await gateway.estimate_fee(query, skip_validate=skip)
            assert ours == await node.estimate_fee(query, skip_validate=skip)
            assert ours.overall_fee > 0

    run(estimate())
