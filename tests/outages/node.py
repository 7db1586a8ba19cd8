"""The node and its chain: slow, hanging, cutting, answering wrong; reset and rolled back."""

import itertools
import time

from edge import Devnet, eventually
from outage import Outage
from way import Way, slow

NUMBERS = itertools.count(1)


class WayToNode(Outage):
    """A gateway whose node is behind a proxy."""

    def start(self):
        self.way = self.add(Way(self.calm))
        self.serve(self.way)

    def ask_nonce(self):
        """A read that nobody else sends at the same time."""
        block = {"block_number": 0}
        return self.edge.read("starknet_getNonce", [block, hex(next(NUMBERS))])


class SlowNode(WayToNode):
    """The node answers, but takes seconds for it."""

    alerts = ("PortcullisCacheSuspended", "PortcullisGatewaySlow", "PortcullisSlow")

    def play(self):
        self.way.fault = slow(getNonce=4.5, others=1.5)
        self.edge.says("cache", "cache bypassed")
        with self.repeating(self.ask_nonce, 40):
            self.fires(*self.alerts)
            assert not self.alertmanager.paged(self.edge.admin)[0], "it answers"
        self.way.fault = slow()
        self.edge.is_well("cache", "cache in use again")


class HangingMethod(WayToNode):
    """One method never gets an answer; the node is fine otherwise."""

    alerts = (
        "PortcullisNodeTimeouts",
        "PortcullisBudgetBurnsFast",
        "PortcullisBudgetBurnsSlowly",
    )
    keys = {**WayToNode.keys, "node__timeout": "1s"}

    def play(self):
        self.way.fault = slow(getNonce=3)
        with self.reading(), self.repeating(self.ask_nonce):
            self.fires(*self.alerts)
            assert self.pages("PortcullisBudgetBurnsFast") == {"PortcullisBudgetBurnsFast"}


class CuttingProxy(WayToNode):
    """A proxy in front of the node closes connections in the midst of calls."""

    alerts = ("PortcullisNodeUnreachable",)

    def play(self):
        self.way.fault = lambda method, _: Way.CUT if method == "starknet_getNonce" else None
        with self.reading(), self.repeating(self.ask_nonce, 1, 0.2):
            self.fires(*self.alerts)


class ErrorPages(WayToNode):
    """A proxy in front of the node answers some calls with a page of its own."""

    alerts = ("PortcullisNodeAnswersWrong",)

    def play(self):
        self.way.fault = lambda method, _: 502 if method == "starknet_getNonce" else None
        with self.repeating(self.ask_nonce):
            self.fires(*self.alerts)


class StandingNode(Outage):
    """The node answers, but its newest block is an hour old."""

    alerts = ("PortcullisNodeStandsStill",)
    keys = {**Outage.keys, "node__max_block_age": "10m"}

    def start(self):
        self.serve(self.own_node())

    def play(self):
        self.mine(time.time() - 3600)
        self.fires(*self.alerts)
        self.mine(time.time())
        self.is_over(*self.alerts)

    def mine(self, at):
        """Mines a block that states the time `at`, in seconds since 1970."""
        self.node.ask("devnet_setTime", time=int(at), generate_block=True)


class ResetChain(Outage):
    """Somebody restarts the development chain under the gateway."""

    alerts = ("PortcullisChainReset",)

    def start(self):
        self.serve(self.own_node())

    def play(self):
        settled = "portcullis_cache_settled_block"
        for _ in range(12):
            self.node.ask("devnet_createBlock")
        scraped = f"{settled}{{instance='{self.edge.admin}'}} >= 12"
        eventually("the blocks to be scraped", lambda: self.prometheus.query(scraped))
        self.node.ask("devnet_restart")
        self.fires(*self.alerts)


class RollingBack(Outage):
    """Somebody takes blocks back, again and again."""

    alerts = ("PortcullisChainRollbacks",)
    keys = {**Outage.keys, "gateway__cache__watch_interval": "100ms"}

    def start(self):
        self.serve(self.own_node())

    def rollbacks(self):
        return self.edge.metric('portcullis_cache_epochs_total{cause="rollback"}') or 0

    def play(self):
        settled = "portcullis_cache_settled_block"
        for number in range(1, 8):
            block = self.node.ask("devnet_createBlock")["block_hash"]
            height = self.node.ask("starknet_blockNumber")
            eventually("the block to be seen", lambda top=height: self.edge.metric(settled) == top)
            self.node.ask("devnet_abortBlocks", starting_block_id={"block_hash": block})
            eventually("the rollback to be seen", lambda n=number: self.rollbacks() >= n)
        self.fires(*self.alerts)
