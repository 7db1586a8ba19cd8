//! What must hold of every answer, position and cache hit, from the world's point of view.

use super::Trace;
use super::edge::Edge;
use super::world::{Question, Reply, World};
use crate::fleet::toolkit::Chance;
use crate::gateway::watch::EpochCause;
use portcullis_filters::position::ChainPosition;
use std::collections::{HashMap, HashSet};

/// A receipt that a client has got.
#[derive(Clone, Copy, Debug)]
struct ShownReceipt {
    block: u32,
    number: u64,
    since: u64,
}

/// What clients have seen, and which rule was broken first.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) step: u64,
    receipts: HashMap<u32, ShownReceipt>,
    /// The newest block, and the step and the epoch of the group in which it was shown.
    heads: Vec<(u64, u64, u64)>,
    low_rounds: usize,
    position: Option<ChainPosition>,
    /// What an epoch of positions may have ended by.
    rollbacks: usize,
    epoch: u64,
    /// Whether a node had a block that was taken back, at the watch's last poll.
    was_forked: bool,
    /// The generation of the cache, and the step in which it began.
    generation: (u64, u64),
    displaced: HashSet<u32>,
    pub(super) broken: Option<&'static str>,
    pub(super) counts: [usize; 6],
}

impl Oracle {
    fn require(&mut self, holds: bool, rule: &'static str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(rule);
        }
    }

    /// A client gets an answer to a call that began at `since`.
    pub(super) fn answered(
        &mut self,
        question: Question,
        reply: Reply,
        since: u64,
        epoch: u64,
        world: &World,
    ) {
        let heads = self.heads.iter().filter(|(_, at, of)| *at < since && *of == epoch);
        let highest = heads.map(|(number, ..)| *number).max();
        match (question, reply) {
            (Question::Receipt(hash), Reply::In(number, block)) => {
                self.counts[0] += 1;
                let since = self.step;
                self.receipts.insert(hash, ShownReceipt { block, number, since });
                self.displaced.remove(&hash);
            }
            (Question::Receipt(hash), Reply::Missing) => {
                self.counts[1] += 1;
                let shown = self.receipts.get(&hash).filter(|shown| shown.since < since).copied();
                let is_gone = shown.is_none_or(|shown| world.taken_back[shown.block as usize]);
                self.require(is_gone, "a receipt that was shown turned into none");
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
        if let Reply::In(number, _) = reply {
            self.heads.push((number, self.step, epoch));
        }
    }

    /// An answer from the cache is about this block.
    pub(super) fn hit(&mut self, block: u32, world: &World) {
        self.counts[3] += 1;
        let is_of_epoch = world.last_seen[block as usize] >= self.generation.1;
        self.require(is_of_epoch, "a hit is from before a noticed rollback");
    }

    /// A transaction is gone from the block of its receipt.
    pub(super) fn displaced(&mut self, hash: u32) {
        self.displaced.insert(hash);
    }

    /// A round of polls found this as the newest block of all.
    pub(super) fn round(&mut self, shown: Option<u64>, polled: Option<u64>, went_back: bool) {
        if polled.is_some() {
            self.low_rounds = if polled < shown { self.low_rounds + 1 } else { 0 };
        }
        if went_back {
            self.counts[4] += 1;
            self.require(self.low_rounds >= 3, "an epoch ended by fewer than three rounds");
            self.low_rounds = 0;
            // what was in a later block counts as rolled back, rightly or not
            self.receipts.retain(|_, receipt| Some(receipt.number) <= polled);
        }
    }

    /// All nodes are fresh again for long: what the chain does not have is not found.
    pub(super) fn end(
        &mut self,
        world: &World,
        edge: &mut Edge,
        choices: &mut Chance,
        trace: &mut Trace,
    ) -> Option<&'static str> {
        let fresh = world.urls[0][0].clone();
        for hash in 0..world.transactions {
            let question = Question::Receipt(hash);
            let wanted = fresh.answer(question);
            // a doubt is resolved by the first
            let answers = [(); 2].map(|()| edge.ask(question, world, choices, self, trace));
            self.require(answers.contains(&Some(wanted)), "a healthy node is not believed");
        }
        self.broken
    }

    /// A poll of the watch was applied.
    pub(super) fn watched(
        &mut self,
        generation: u64,
        broke: Option<EpochCause>,
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
            || broke == Some(EpochCause::Unreachable);
        self.was_forked = world.is_forked();
        if position.is_some() && self.position.is_some() {
            self.counts[5] += 1;
            self.require(position >= self.position, "a position went back");
            self.require(!is_new || is_excused, "an epoch of positions ended without a rollback");
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
