//! The rules that every answer, position and cache hit must keep, from the world's point of view.

use super::Trace;
use super::edge::Edge;
use super::world::{Question, Reply, World};
use crate::toolkit::Chance;
use portcullis_filters::chain::{ConnectionId, NodeMode, PurgeCause};
use portcullis_filters::position::ChainPosition;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Steps that take less than two seconds, the least time for three doubts.
const DOUBTED: u64 = 4;

/// A receipt that a client has received.
#[derive(Clone, Copy, Debug)]
struct ShownReceipt {
    block: u32,
    number: u64,
    since: u64,
}

/// The answers that clients have seen, and the first broken rule.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) step: u64,
    receipts: HashMap<u32, ShownReceipt>,
    /// The block and the step of each status that clients have got in this epoch of the group.
    statuses: HashMap<u32, (u32, u64)>,
    /// Receipts, each with a block number that a round has disproved: they raise no floor.
    disproved: HashSet<(u32, u64)>,
    /// The blocks that were shown, each with the step and the epoch of the group at that time.
    heads: Vec<(u64, u64, u64)>,
    /// The connections of each round in a row without the newest block.
    low_rounds: Vec<Vec<ConnectionId>>,
    /// The connections whose answers were behind.
    behind: HashSet<u64>,
    /// The block that `latest` last meant to replicas, and the epoch of the group.
    pin: Option<(u64, u64)>,
    position: Option<ChainPosition>,
    /// The rollbacks that may have ended an epoch of positions.
    rollbacks: usize,
    epoch: u64,
    /// Whether a node had a rolled-back block at the watch's last poll.
    was_forked: bool,
    /// The generation of the cache, and the step in which it began.
    generation: (u64, u64),
    pub(super) broken: Option<&'static str>,
    pub(super) counts: [usize; 6],
}

impl Oracle {
    fn require(&mut self, holds: bool, rule: &'static str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(rule);
        }
    }

    /// Checks an answer to a client's call that began at step `since`.
    pub(super) fn answered(
        &mut self,
        question: Question,
        reply: Reply,
        since: u64,
        epoch: u64,
        world: &World,
    ) {
        let heads = self
            .heads
            .iter()
            .filter(|(_, at, of)| *at < since && *of == epoch);
        let highest = heads.map(|(number, ..)| *number).max();
        match (question, reply) {
            (Question::Receipt(hash), Reply::In(number, block)) => {
                self.counts[0] += 1;
                let since = self.step;
                self.receipts.insert(
                    hash,
                    ShownReceipt {
                        block,
                        number,
                        since,
                    },
                );
            }
            (Question::Receipt(hash), Reply::Missing) => {
                self.counts[1] += 1;
                let shown = self
                    .receipts
                    .get(&hash)
                    .filter(|shown| shown.since < since)
                    .copied();
                let is_gone = shown.is_none_or(|shown| {
                    // a receipt that names a wrong block cannot be checked
                    let is_true = world.number_of(shown.block) == Some(shown.number);
                    !is_true || world.taken_back[shown.block as usize]
                });
                self.require(is_gone, "a receipt that was shown turned into none");
            }
            (Question::Status(hash), Reply::In(_, block)) => {
                self.statuses.insert(hash, (block, self.step));
            }
            (Question::Status(hash), Reply::Missing) => {
                let shown = self.statuses.get(&hash).filter(|(_, at)| *at < since);
                let is_recent = shown.is_some_and(|(block, at)| {
                    self.step - at < DOUBTED && !world.taken_back[*block as usize]
                });
                self.require(!is_recent, "a status that was shown turned into none");
            }
            (Question::Head, Reply::In(number, _)) => {
                self.counts[2] += 1;
                self.require(Some(number) >= highest, "the head fell");
            }
            (Question::Block(number), Reply::Missing) => {
                let is_shown = highest.is_some_and(|head| number <= head && number + 8 >= head);
                self.require(!is_shown, "a block that was shown turned into none");
            }
            _ => {}
        }
        let raises_nothing = match (question, reply) {
            (Question::Receipt(hash), Reply::In(number, _)) => {
                self.disproved.contains(&(hash, number))
            }
            // it names no block
            (Question::Status(_), _) => true,
            _ => false,
        };
        if let Reply::In(_, block) = reply
            && let Some(number) = world.number_of(block).filter(|_| !raises_nothing)
        {
            self.heads.push((number, self.step, epoch));
        }
    }

    /// Checks the connection that a call is sent over.
    pub(super) fn sent(&mut self, connection: ConnectionId) {
        let was_behind = self.behind.contains(&connection.0);
        self.require(
            !was_behind,
            "a read is repeated over a connection that was behind",
        );
    }

    /// Checks the block that `latest` means to replicas, in this epoch of the group. A receipt is read
    /// at the primary, which may have a later block.
    pub(super) fn pinned(&mut self, number: u64, epoch: u64) {
        self.counts[2] += 1;
        let falls = self
            .pin
            .is_some_and(|(last, of)| of == epoch && number < last);
        self.require(!falls, "the head fell");
        self.pin = Some((number, epoch));
    }

    /// Checks that a round may use a block that the watch has read: no answer has shown a newer one
    /// since.
    pub(super) fn reused(&mut self, is_newest: bool) {
        self.require(is_newest, "a round takes back what an answer has shown");
    }

    /// Records that an answer over this connection was behind.
    pub(super) fn was_behind(&mut self, connection: ConnectionId) {
        self.behind.insert(connection.0);
    }

    /// Checks an answer from the cache about this block.
    pub(super) fn hit(&mut self, block: u32, world: &World) {
        self.counts[3] += 1;
        let is_of_epoch = world.last_seen[block as usize] >= self.generation.1;
        self.require(is_of_epoch, "a hit is from before a noticed rollback");
    }

    /// Checks that a transaction was rightly given up after three doubts.
    pub(super) fn given_up(&mut self, hash: u32, world: &World) {
        let Some(shown) = self.receipts.remove(&hash) else {
            return;
        };
        let is_early = self.step - shown.since < DOUBTED;
        self.require(
            !is_early,
            "a receipt that was shown was doubted for too short a time",
        );
        let is_kept = !world.taken_back[shown.block as usize] && world.is_fresh();
        self.require(!is_kept, "fresh nodes were not believed");
    }

    /// Checks a round of polls, which found `polled` as the newest block of all.
    pub(super) fn round(
        &mut self,
        shown: Option<u64>,
        polled: Option<u64>,
        went_back: bool,
        connections: Vec<ConnectionId>,
    ) {
        if polled.is_some() {
            if polled >= shown {
                self.low_rounds.clear();
            } else {
                self.low_rounds.push(connections);
            }
        }
        if went_back {
            self.counts[4] += 1;
            self.require(
                self.low_rounds.len() >= 3,
                "a rollback was announced after fewer than three rounds",
            );
            let low: HashSet<_> = self.low_rounds.iter().flatten().map(|id| id.0).collect();
            self.require(
                low.len() >= 3,
                "a rollback was announced by fewer than three connections",
            );
            self.low_rounds.clear();
            self.statuses.clear();
            // transactions of later blocks count as rolled back, rightly or not
            let receipts = self
                .receipts
                .iter()
                .map(|(hash, receipt)| (*hash, receipt.number));
            self.disproved
                .extend(receipts.filter(|(_, number)| Some(*number) > polled));
            self.receipts
                .retain(|_, receipt| Some(receipt.number) <= polled);
        }
    }

    /// Checks, once all nodes have been fresh for long, that every answer is the chain's: a
    /// transaction that the chain lacks must not be found.
    pub(super) fn end(
        &mut self,
        world: &World,
        edge: &mut Edge,
        choices: &mut Chance,
        trace: &mut Trace,
    ) -> Option<&'static str> {
        let fresh = world.urls[0][0].clone();
        let hashes = 0..world.transactions;
        let questions = hashes.flat_map(|hash| [Question::Receipt(hash), Question::Status(hash)]);
        let questions: Vec<_> = questions.chain([Question::Head]).collect();
        let mut is_believed = false;
        // three connections are believed, so each poll has one of its own
        edge.keeps_connections = false;
        // a doubt takes three seconds, and receipts that name no real block begin another
        for _ in 0..10 {
            let ask = |question: &Question| {
                edge.ask(*question, world, choices, self, trace) == Some(fresh.answer(*question))
            };
            let wrong = questions
                .iter()
                .map(ask)
                .filter(|is_right| !is_right)
                .count();
            is_believed = wrong == 0;
            edge.pass(SECOND, world, choices, self, trace);
            // as many steps as take a second at most
            self.step += 2;
        }
        self.require(is_believed, "a healthy node is not believed");
        let left_out = edge.left_out();
        let others = world.urls.iter().zip(left_out);
        let mut others = others.filter(|(nodes, _)| nodes.iter().all(|node| node.version == "0.9"));
        let serves =
            world.mode == NodeMode::Replicas && others.any(|(_, left_out)| left_out.is_none());
        self.require(!serves, "a replica of another version serves");
        self.broken
    }

    /// Checks a poll of the watch that was applied.
    pub(super) fn watched(
        &mut self,
        generation: u64,
        broke: Option<PurgeCause>,
        position: Option<ChainPosition>,
        epoch: u64,
        world: &World,
    ) {
        if generation != self.generation.0 {
            self.generation = (generation, self.step);
        }
        let is_new = position.map(|own| own.epoch) != self.position.map(|own| own.epoch);
        let is_excused = world.rollbacks > self.rollbacks
            || epoch > self.epoch
            || self.was_forked
            || world.is_forked()
            || broke == Some(PurgeCause::Unreachable);
        self.was_forked = world.is_forked();
        if position.is_some() && self.position.is_some() {
            self.counts[5] += 1;
            self.require(position >= self.position, "a position went back");
            self.require(
                !is_new || is_excused,
                "an epoch of positions ended without a rollback",
            );
        }
        if position.is_some() {
            self.position = position;
            if is_new {
                (self.rollbacks, self.epoch) = (world.rollbacks, epoch);
            }
        } else if broke.is_some() {
            self.position = None;
        }
    }
}
