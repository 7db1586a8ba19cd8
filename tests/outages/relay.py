"""The relay: an empty faucet, slow blocks and none, lost answers, reverts, a locked database."""

import itertools
import os
import re
import threading

import psycopg
from starknet_py.hash.address import compute_address
from starknet_py.net.signer.key_pair import KeyPair

from edge import WallClock
from outage import Outage
from way import Receiver, Way, slow
from world import GET_PUBLIC_KEY

NUMBERS = itertools.count(1)


class Writes(Outage):
    """A relay on contracts of its own."""

    def pin(self, name):
        config = (self.folder / "portcullis.toml").read_text()
        return re.search(rf'^{name} = "(\w+)"', config, re.M)[1]

    def drip(self):
        """Has the faucet pay a new account, which nobody has deployed; status and body."""
        key = KeyPair.generate().public_key
        address = compute_address(
            salt=key,
            class_hash=int(self.pin("account_class"), 16),
            constructor_calldata=[key],
            deployer_address=0,
        )
        body = {"recipient": hex(address), "public_key": hex(key)}
        return self.operate("/faucet-drip", {"identity": hex(0x1D00 + next(NUMBERS)), **body})


class EmptyFaucet(Writes):
    """Users empty the faucet."""

    alerts = ("PortcullisRelayBalanceLow",)
    keys = {**Outage.keys, "relay__policy__faucet_amount": "180 STRK"}

    def start(self):
        self.serve(self.own_node(), relay=True)

    def play(self):
        status, text = self.drip()
        assert status == 200, text
        self.fires(*self.alerts)


class SpentBudget(Writes):
    """Users get as many drips as the operator permits in a day."""

    alerts = ("PortcullisRelayBudgetLow",)
    keys = {**Outage.keys, "relay__faucet_per_day": 1}

    def start(self):
        self.serve(self.own_node(), relay=True)

    def play(self):
        status, text = self.drip()
        assert status == 200, text
        status, text = self.drip()
        assert status == 429 and "budget_exceeded" in text, text
        self.fires(*self.alerts)


class RolledBack(Writes):
    """The chain takes back the block of a write, and another write takes its nonce."""

    alerts = ("PortcullisRelayWritesDisplaced", "PortcullisRelayWritesLost")
    keys = {**Outage.keys, "relay__confirmations": 0}

    def start(self):
        self.serve(self.own_node(), relay=True)

    def play(self):
        displaced, lost = self.alerts
        status, text = self.drip()
        assert status == 200, text
        self.node.ask("devnet_abortBlocks", starting_block_id="latest")
        self.fires(displaced)
        status, text = self.drip()
        assert status == 200, text
        self.fires(lost)
        self.is_over(displaced)


class ReceiverFails(Writes):
    """The receiver of events is away, and comes back."""

    alerts = ("PortcullisRelayEventsLate",)

    def start(self):
        self.receiver = self.add(Receiver())
        secret = self.folder / "events.secret"
        secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
        secret.chmod(0o600)
        events = {"url": self.receiver.url, "secret_file": str(secret)}
        keys = {f"relay__events__{name}": value for name, value in events.items()}
        self.serve(self.own_node(), relay=True, **keys)

    def play(self):
        status, text = self.drip()
        assert status == 200, text
        self.fires(*self.alerts)
        self.receiver.status = 204
        self.is_over(*self.alerts)


class NoBlocks(Writes):
    """The node accepts transactions, and makes no blocks any more."""

    alerts = ("PortcullisRelayWriteStuck",)

    def start(self):
        node = self.own_node("--block-generation-on", "demand")
        self.is_over = threading.Event()
        self.stack.callback(self.is_over.set)
        threading.Thread(target=self.make_blocks, args=(node,), daemon=True).start()
        self.serve(node, relay=True)

    def make_blocks(self, node):
        while not self.is_over.wait(0.2):
            node.ask("devnet_createBlock")

    def play(self):
        self.is_over.set()
        status, text = self.drip()
        assert status == 202 and "pending" in text, text
        self.fires(*self.alerts)


class LostAnswers(Writes):
    """The answers to transactions get lost on their way back."""

    alerts = ("PortcullisRelayOutcomesUnknown",)

    def start(self):
        node = self.own_node()
        self.way = self.add(Way(node))
        self.serve(node, relay=True, node__url=self.way.url)

    def play(self):
        self.way.fault = lambda method, _: Way.SWALLOW if "_add" in method else None
        status, text = self.drip()
        assert status == 504 and "outcome_unknown" in text, text
        self.fires(*self.alerts)


class BusyFaucet(LostAnswers):
    """The node takes long for each call, and many operations are sent at once."""

    alerts = ("PortcullisRelayQueueLong",)

    def play(self):
        self.way.fault = slow(others=0.4)
        with self.repeating(self.drip, 40):
            self.fires(*self.alerts)
            self.way.fault = slow()


class StaleProxy(LostAnswers):
    """A proxy in front of the node answers with the newest block of some time ago."""

    alerts = ("PortcullisCacheStandsStill",)

    def play(self):
        block = "starknet_getBlockWithTxHashes"
        self.way.fault = lambda method, _: Way.REPEAT if method == block else None
        with self.repeating(self.drip, 1, 1):
            self.fires(*self.alerts)


class Reverts(LostAnswers):
    """An account loses its verification each time a card for it is on its way."""

    alerts = ("PortcullisRelayWritesReverting",)

    def call(self, path, **body):
        status, text = self.operate(path, body)
        assert status == 200, text

    def revoking(self, account):
        """A fault that revokes what is attested of an account before the next transaction."""
        transactions = []

        def revoke(method, _params):
            if "_add" in method and not transactions:
                transactions.append(method)
                self.call("/verification-revoke", account=account, reason="meanwhile")

        return revoke

    def play(self):
        # one that is deployed already
        account = self.pin("faucet")
        view = {"contract_address": account, "entry_point_selector": GET_PUBLIC_KEY}
        view["calldata"] = []
        key = self.node.ask("starknet_call", request=view, block_id="latest")[0]
        self.call("/register", identity="0x1d", account=account, public_key=key)
        kind = {"assurance_type": "age_over_18", "assurance_level": 1}
        kind["expires_at"] = "2100-01-01T00:00:00Z"
        for number in range(1, 8):
            attestation = {"account": account, "attestation_id": hex(number), **kind}
            self.call("/verification-attest", **attestation)
            self.way.fault = self.revoking(account)
            card = {"recipient": account, "card_id": str(number)}
            status, text = self.operate("/mint-card", card)
            assert status == 409 and "reverted" in text, text
            self.way.fault = lambda *_: None
        self.fires(*self.alerts)


class DripReturns(LostAnswers):
    """A drip reverts, its recipient is paid by another one, and after a rollback of both the first
    one succeeds."""

    alerts = ("PortcullisRelayDripPaidTwice",)

    @staticmethod
    def reverting(answer):
        """A receipt that says that its transaction reverted."""
        result = answer.get("result")
        if result:
            result["execution_status"] = "REVERTED"
            result["revert_reason"] = "meanwhile"
        return answer

    def play(self):
        key = KeyPair.generate().public_key
        address = compute_address(
            salt=key,
            class_hash=int(self.pin("account_class"), 16),
            constructor_calldata=[key],
            deployer_address=0,
        )
        drip = {"identity": "0x1d00", "recipient": hex(address), "public_key": hex(key)}
        first = []

        def revert(method, params):
            if method != "starknet_getTransactionReceipt":
                return None
            hash_ = params["transaction_hash"] if isinstance(params, dict) else params[0]
            first.append(hash_)
            return self.reverting if hash_ == first[0] else None

        self.way.fault = revert
        status, text = self.operate("/faucet-drip", drip)
        assert status == 409 and "reverted" in text, text
        status, text = self.operate("/faucet-drip", drip)
        assert status == 200, text
        self.way.fault = lambda *_: None
        # both blocks; a repeat sends the two transactions again, in the order of their nonces
        head = self.node.ask("starknet_blockNumber")
        self.node.ask("devnet_abortBlocks", starting_block_id={"block_number": head - 1})
        with self.repeating(lambda: self.operate("/faucet-drip", drip), 1, 1):
            self.fires(*self.alerts)


class LockedTables(Writes):
    """Somebody locks the journal's tables in PostgreSQL, and goes to lunch."""

    alerts = ("PortcullisRelayNotReconciling", "PortcullisStoreUnavailable")

    def start(self):
        url = os.environ["PORTCULLIS_TEST_POSTGRES"]
        with psycopg.connect(url + "postgres", autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS outages")
            connection.execute("CREATE DATABASE outages")
        self.url = url + "outages"
        self.serve(self.own_node(), relay=True, store__url=self.url)

    def play(self):
        with psycopg.connect(self.url) as connection:
            connection.execute("LOCK TABLE intent IN ACCESS EXCLUSIVE MODE")
            self.edge.is_wrong("store", "store unreachable", "timeout", "failing")
            self.fires(*self.alerts)
        self.edge.is_well("store", "store reachable again")


class WrongClock(Writes):
    """The clock of the machine is three minutes behind."""

    alerts = ("PortcullisRelayPinsStale",)
    def start(self):
        self.serve(self.own_node(), relay=True)

    def play(self):
        self.edge.child.end()
        self.edge.env |= WallClock(self.folder, -180).env
        self.edge.start()
        self.fires(*self.alerts)
