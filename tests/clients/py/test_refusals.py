"""What a developer sees when the gateway, or the node behind it, refuses a request."""

import pytest
from starknet_py.net.account.account import Account
from starknet_py.net.client_errors import ClientError

from world import (
    ACCOUNT_CLASS,
    GATEWAY,
    funded_account,
    gateway,
    post,
    run,
)


def test_a_write_through_the_gateway_is_refused_and_names_the_relay():
    async def deploy():
        future = await funded_account()
        await Account.deploy_account_v3(
            address=future.address,
            class_hash=ACCOUNT_CLASS,
            salt=future.keys.public_key,
            key_pair=future.keys,
            client=gateway,
            auto_estimate=True,
        )

    with pytest.raises(ClientError) as refusal:
        run(deploy())
    # starknet.py reports the HTTP status as the code, and the whole body as the message.
    assert refusal.value.code == "403"
    assert "method_not_allowed" in refusal.value.message
    assert "relay" in refusal.value.message.lower()


def test_contract_not_found_passes_through_unchanged():
    with pytest.raises(ClientError) as error:
        run(gateway.get_class_hash_at(0xDEAD))
    assert error.value.code == 20


def test_an_empty_list_and_an_empty_object_both_mean_no_params():
    for params in ([], {}):
        body = {"jsonrpc": "2.0", "id": 0, "method": "starknet_chainId", "params": params}
        status, answer = run(post(GATEWAY, body))
        assert status == 200, answer
        assert answer["id"] == 0
