//! The gateway of the simulation: the real state of the node and the watch, and the real rules of
//! the cache, with calls that are answered at once or late. Waiting is left out.

use super::once_in;
use super::oracle::Oracle;
use super::world::{self, Question, Reply, World};
use super::{Bug, Trace};
use crate::toolkit::Chance;
use portcullis_filters::chain::continuity::{L1, Poll};
use portcullis_filters::chain::{
    Asked, BlockIdentity, Change, ConnectionId, Evidence, GroupState, LeftOut, NodeState,
    Observation, PollResult, PurgeCause, Repeat, ServedChain, Shows, Source, Standing, Validity,
    View, Watched,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::rpc::CachePolicy;
use std::collections::HashMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A client's read whose answer is in transit.
#[derive(Debug)]
pub(super) struct Call {
    question: Question,
    /// The block, if the call may go to any URL that has it.
    block: Option<u64>,
    answered: Answered,
    floor: Option<u64>,
    view: View,
    since: u64,
}

/// An answer, and where it is from.
#[derive(Clone, Copy, Debug)]
struct Answered {
    reply: Reply,
    url: usize,
    /// The node that the connection led to.
    node: usize,
    connection: ConnectionId,
}

/// The cached receipts: each with its block's number and identity.
#[derive(Debug, Default)]
struct Cache {
    view: View,
    receipts: HashMap<u32, (Validity, u64, u32)>,
}

impl Cache {
    fn get(&self, hash: u32, now: Duration) -> Option<(u64, u32)> {
        let (validity, number, id) = *self.receipts.get(&hash)?;
        self.view.holds(validity, now).then_some((number, id))
    }

    fn insert(&mut self, hash: u32, (number, id): (u64, u32), view: &View, now: Duration) {
        let policy = CachePolicy::UntilL1(number);
        if let Ok(validity) = view.validity(policy, self.view.generation, now) {
            self.receipts.insert(hash, (validity, number, id));
        }
    }

    fn change(&mut self, view: View) {
        if view.generation != self.view.generation {
            self.receipts.clear();
        }
        self.view = view;
    }
}

pub(super) struct Edge {
    node: NodeState,
    cache: Cache,
    bug: Option<Bug>,
    /// Whether the last judged answer ended the doubts about its transaction.
    gives_up: bool,
    /// Seconds by which [`Bug::OneDoubtIsEnough`] moves doubts ahead.
    doubts: u32,
    pub(super) now: Duration,
    polled: Duration,
    /// When the watch polled last; it does at another time than the rounds.
    watched: Duration,
    calls: Vec<Call>,
    /// The connection of each URL's last poll, and the node that it leads to.
    polls: Vec<(usize, ConnectionId)>,
    connections: u64,
    /// The idle connection to each URL, and the node that it leads to.
    idle: Vec<Option<(usize, ConnectionId)>>,
    /// The last read of each URL by the watch, for [`Bug::WatchedTwice`].
    read: Vec<Option<(BlockIdentity, ConnectionId)>>,
    /// Whether a poll may go over the connection of the last one.
    pub(super) keeps_connections: bool,
    has_several: bool,
}

impl Edge {
    pub(super) fn new(world: &World, bug: Option<Bug>) -> Self {
        let urls = world.urls.len();
        Self {
            node: NodeState::new(
                ServedChain::new(urls, None, 0),
                GroupState::new(urls, world.mode, 8),
            ),
            cache: Cache::default(),
            bug,
            gives_up: false,
            doubts: 0,
            now: SECOND,
            polled: Duration::ZERO,
            watched: SECOND / 2,
            calls: Vec::new(),
            polls: vec![(0, ConnectionId(0)); urls],
            connections: 0,
            idle: vec![None; urls],
            read: vec![None; urls],
            keeps_connections: true,
            has_several: urls > 1,
        }
    }

    /// Whether the URL may get a request about the state at this block, or one to the primary.
    fn is_able(&mut self, url: usize, block: Option<u64>) -> bool {
        let (asked, repeat) = (Asked::Call, Repeat::Safe);
        self.node.standing(url, block, asked, repeat, self.now) != Standing::Excluded
    }

    /// The URLs for a read, in order. A block of a group of replicas is read from any of them.
    fn order(&mut self, question: Question, choices: &mut Chance) -> (Vec<usize>, Option<u64>) {
        let urls = self.node.group.members.len();
        if let Question::Block(number) = question
            && self.has_several
            && let Some(first) = self
                .node
                .choose(number, u64::from(choices.choose(64)), |_| Some(0))
        {
            let others = (0..urls).filter(|url| *url != first);
            return ([first].into_iter().chain(others).collect(), Some(number));
        }
        ((0..urls).collect(), None)
    }

    fn connect(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId(self.connections)
    }

    /// Why each URL is left out.
    pub(super) fn left_out(&self) -> Vec<Option<LeftOut>> {
        self.node.group.left_out()
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn doubt_at(&mut self) -> Duration {
        self.doubts += u32::from(self.has(Bug::OneDoubtIsEnough));
        self.now + SECOND * self.doubts
    }

    /// The chain state that the answer shows, as `Route` reads it.
    fn shows(&self, question: Question, reply: Reply) -> Shows {
        match (question, reply) {
            (Question::Receipt(_), Reply::In(..)) if self.has(Bug::ReceiptIgnored) => {
                Shows::Nothing
            }
            (Question::Block(_), Reply::Missing) if self.has(Bug::NoBlockBelieved) => {
                Shows::Nothing
            }
            (Question::Head, Reply::In(number, _)) => Shows::Head(number),
            (Question::Known(number), Reply::Missing) => Shows::NoKnownBlock(number),
            (Question::Block(_) | Question::Known(_), Reply::In(number, _)) => Shows::Block(number),
            (Question::Receipt(hash), Reply::In(number, _)) => {
                Shows::Accepted(felt(hash), Some(number))
            }
            (Question::Status(hash), Reply::In(..)) => Shows::Accepted(felt(hash), None),
            (Question::Receipt(hash) | Question::Status(hash), Reply::Missing) => {
                Shows::NotAccepted(felt(hash))
            }
            (Question::Block(number), Reply::Missing) => Shows::NoBlock(number),
            (Question::Head, Reply::Missing) => Shows::Nothing,
        }
    }

    /// Sends a request over the idle connection to the URL, or over a new one; `None` if its node
    /// is down.
    fn send(
        &mut self,
        url: usize,
        question: Question,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
    ) -> Option<Answered> {
        let (node, connection) = match self.idle[url].take() {
            Some((node, connection)) => (world.lead(url, node, choices), connection),
            None => (world.connect(url, choices), self.connect()),
        };
        oracle.sent(connection);
        let reply = world.node(url, node)?.answer(question);
        Some(Answered {
            reply,
            url,
            node,
            connection,
        })
    }

    /// Returns whether an answer may be passed on. The connection is kept unless it is behind.
    fn judge(
        &mut self,
        question: Question,
        block: Option<u64>,
        answered: Answered,
        floor: Option<u64>,
        oracle: &mut Oracle,
    ) -> bool {
        let Answered {
            reply,
            url,
            node,
            connection,
        } = answered;
        let source = match question {
            _ if !self.has_several || block.is_some() => Source::Any,
            Question::Head => Source::PrimaryAtHead,
            _ => Source::Primary,
        };
        let floor = floor.filter(|_| !self.has(Bug::NoFloor));
        let answer = Evidence {
            source,
            shows: self.shows(question, reply),
            connection,
        };
        if let (Question::Receipt(_), Reply::In(number, _), true) =
            (question, reply, self.has(Bug::DisprovedBelieved))
        {
            self.node.observe(Observation::Shown(number), self.now);
        }
        let now = self.doubt_at();
        let block = |edge: &Self| match question {
            Question::Receipt(hash) | Question::Status(hash) => {
                edge.node.group.block_of(felt(hash))
            }
            _ => None,
        };
        let before = block(self);
        let passes = self.node.group.answered(url, answer, floor, now);
        self.gives_up = before.is_some() && block(self).is_none();
        if !passes {
            oracle.was_behind(connection);
        }
        if passes || self.has(Bug::ConnectionKept) {
            self.idle[url] = Some((node, connection));
        }
        passes
    }

    /// Makes one attempt at a call. Returns the URL and its answer, or why none may be passed on.
    fn attempt(
        &mut self,
        question: Question,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
    ) -> Result<(usize, Reply), Behind> {
        let floor = self.node.group.floor();
        let is_held_back = self.has_several && self.node.group.is_held_back();
        let mut behind = if is_held_back {
            Behind::Lagging
        } else {
            Behind::Down
        };
        let (order, block) = self.order(question, choices);
        for url in order {
            if !self.is_able(url, block) {
                continue;
            }
            let Some(answered) = self.send(url, question, world, choices, oracle) else {
                continue;
            };
            if self.judge(question, block, answered, floor, oracle) {
                return Ok((url, answered.reply));
            }
            behind = Behind::Lagging;
        }
        Err(behind)
    }

    /// Makes a client's read, which is answered from the cache, at once, or late.
    pub(super) fn read(
        &mut self,
        question: Question,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) {
        let view = self.cache.view;
        if question == Question::Head && self.ask_pinned(oracle, trace) {
            return;
        }
        if let Question::Receipt(hash) = question
            && let Some((number, id)) = self.cache.get(hash, self.now)
        {
            trace.note(self.now, || {
                format!("hit {question:?}: block {number}, id {id}")
            });
            oracle.hit(id, world);
            oracle.answered(
                question,
                Reply::In(number, id),
                oracle.step,
                self.node.group.rollbacks,
                world,
            );
            return;
        }
        if once_in(choices, 4) {
            let (order, block) = self.order(question, choices);
            let url = order.into_iter().find(|url| self.is_able(*url, block));
            let Some(url) = url else { return };
            let Some(answered) = self.send(url, question, world, choices, oracle) else {
                return;
            };
            trace.note(self.now, || {
                format!("call {question:?} at {url}: {:?}, late", answered.reply)
            });
            let floor = self.node.group.floor();
            self.calls.push(Call {
                question,
                block,
                answered,
                floor,
                view,
                since: oracle.step,
            });
            return;
        }
        if let Some(reply) = self.ask(question, world, choices, oracle, trace) {
            self.store(question, reply, view);
        }
    }

    /// Answers a read of the newest block's number as a group of replicas does: without a call.
    /// Returns whether `latest` is pinned.
    fn ask_pinned(&mut self, oracle: &mut Oracle, trace: &mut Trace) -> bool {
        let Some(number) = self.node.group.pinned().filter(|_| self.has_several) else {
            return false;
        };
        trace.note(self.now, || format!("the head is pinned to {number}"));
        oracle.pinned(number, self.node.group.rollbacks);
        true
    }

    /// Makes a call that is answered at once.
    pub(super) fn ask(
        &mut self,
        question: Question,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) -> Option<Reply> {
        if question == Question::Head && self.ask_pinned(oracle, trace) {
            return self.node.group.pinned().and_then(|number| {
                let mut views = world.urls.iter().flatten();
                let block = views.find_map(|view| view.block(number))?;
                Some(Reply::In(number, block.id))
            });
        }
        match self.attempt(question, world, choices, oracle) {
            Ok((url, reply)) => {
                trace.note(self.now, || {
                    format!("call {question:?} at {url}: {reply:?}")
                });
                self.tell_what_is_given_up(question, world, oracle);
                oracle.answered(
                    question,
                    reply,
                    oracle.step,
                    self.node.group.rollbacks,
                    world,
                );
                Some(reply)
            }
            Err(behind) => {
                trace.note(self.now, || format!("call {question:?}: {behind:?}"));
                self.doubt(behind, question, world, choices, oracle, trace);
                None
            }
        }
    }

    fn tell_what_is_given_up(&self, question: Question, world: &World, oracle: &mut Oracle) {
        if let Question::Receipt(hash) | Question::Status(hash) = question
            && self.gives_up
        {
            oracle.given_up(hash, world);
        }
    }

    /// Performs the steps of a call before it is retried (`node::behind`).
    fn doubt(
        &mut self,
        behind: Behind,
        question: Question,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) {
        if behind == Behind::Down {
            return;
        }
        if let Question::Receipt(hash) | Question::Status(hash) = question
            && let Some(number) = self.node.group.block_of(felt(hash))
            && let Ok((_, Reply::In(_, id))) =
                self.attempt(Question::Known(number), world, choices, oracle)
            && !world.has(id, hash)
            && !self.has(Bug::NeverDisplaced)
        {
            trace.note(self.now, || {
                format!("transaction {hash} is not in block {number}")
            });
            let now = self.doubt_at();
            let connection = self.connect();
            let missing = Observation::Missing(number, felt(hash), connection);
            if self.node.observe(missing, now) != Change::None {
                oracle.given_up(hash, world);
            }
        }
        let now = self.now;
        if !self.has_several && self.node.group.begin_doubt(now) {
            self.round(world, choices, oracle, trace);
        }
    }

    /// Delivers a late answer.
    pub(super) fn deliver(
        &mut self,
        choices: &mut Chance,
        oracle: &mut Oracle,
        world: &World,
        trace: &mut Trace,
    ) {
        if self.calls.is_empty() {
            return;
        }
        let call = self
            .calls
            .remove(choices.choose(self.calls.len() as u32) as usize);
        let Call {
            question,
            block,
            answered,
            floor,
            view,
            since,
        } = call;
        let reply = answered.reply;
        let passes = self.judge(question, block, answered, floor, oracle);
        trace.note(self.now, || {
            format!("late {question:?}: {reply:?}, passes {passes}")
        });
        if passes {
            self.tell_what_is_given_up(question, world, oracle);
            oracle.answered(question, reply, since, self.node.group.rollbacks, world);
            self.store(question, reply, view);
        }
    }

    fn store(&mut self, question: Question, reply: Reply, view: View) {
        let (Question::Receipt(hash), Reply::In(number, id)) = (question, reply) else {
            return;
        };
        let view = if self.has(Bug::StoredUnderLaterView) {
            self.cache.view
        } else {
            view
        };
        self.cache.insert(hash, (number, id), &view, self.now);
    }

    /// Runs a round of polls of the heads.
    fn round(
        &mut self,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) {
        self.node.observe(Observation::RoundBegun, self.now);
        let mut results: Vec<_> = (0..world.urls.len())
            .map(|url| self.poll_url(url, world, choices, oracle))
            .collect();
        let heads: Vec<_> = results
            .iter()
            .map(|found| Some(found.as_ref()?.0.clone()))
            .collect();
        if let Some(number) = self.node.group.common_height(&heads) {
            for (result, view) in results.iter_mut().flatten() {
                result.block = view.block(number).map(|block| identity(number, block.id));
            }
        }
        let mut heads: Vec<_> = results.into_iter().map(|found| Some(found?.0)).collect();
        let shown = self.node.group.floor();
        // a URL that is left out does not count
        let usable = heads.iter().zip(&self.node.group.members);
        let usable = usable.filter(|(_, url)| url.left_out.is_none());
        let polled = usable
            .filter_map(|(result, _)| Some(result.as_ref()?.head))
            .max();
        let times = if self.has(Bug::OneRoundIsEnough) {
            3
        } else {
            1
        };
        let mut went_back = false;
        for _ in 0..times {
            if self.has(Bug::OneRoundIsEnough) {
                let each = heads.iter_mut().flatten();
                each.for_each(|result| result.connection = self.connect());
            }
            let change = self.node.observe(Observation::Round(&heads), self.now);
            went_back |= matches!(change, Change::WentBack(_));
        }
        if self.has(Bug::PinFollowsLowest) && self.node.group.has_replicas() {
            let heads = self.node.group.members.iter().filter_map(|url| url.head);
            let lowest = heads.min();
            (self.node.group.head, self.node.group.shown) = (lowest, lowest);
        }
        trace.note(self.now, || {
            format!("round: {polled:?} of {shown:?}, went back {went_back}")
        });
        let polls = self.polls.iter().zip(&heads);
        let connections = polls.filter(|(_, result)| result.is_some());
        let connections = connections
            .map(|((_, connection), _)| *connection)
            .collect();
        oracle.round(shown, polled, went_back, connections);
    }

    /// Polls a URL over a new connection, or over that of its last poll.
    fn poll_url<'a>(
        &mut self,
        url: usize,
        world: &'a World,
        choices: &mut Chance,
        oracle: &mut Oracle,
    ) -> Option<(PollResult, &'a world::View)> {
        let known = self.node.group.members[url].head;
        let mut watched = self.node.take_watched(url, SECOND, self.now);
        if self.has(Bug::WatchedTwice) {
            watched = watched.or(self.read[url]);
            self.read[url] = watched;
        }
        if let Some((head, connection)) = watched.filter(|_| self.has_several) {
            oracle.reused(known <= Some(head.number));
            let node = world.connect(url, choices);
            self.polls[url] = (node, connection);
            let view = world.node(url, node)?;
            return Some((self.result(head.number, connection, view), view));
        }
        if !once_in(choices, 3) || !self.keeps_connections {
            self.polls[url] = (world.connect(url, choices), self.connect());
        }
        let (node, mut connection) = self.polls[url];
        let node = world.lead(url, node, choices);
        let view = world.node(url, node)?;
        if self.has(Bug::ConnectionsNotCounted) {
            connection = self.connect();
        }
        Some((self.result(view.head(), connection, view), view))
    }

    fn result(&self, head: u64, connection: ConnectionId, view: &world::View) -> PollResult {
        let result = PollResult::of_head(head, connection);
        if !self.node.group.has_replicas() {
            return result;
        }
        let version = if self.has(Bug::VersionIgnored) {
            "0.10"
        } else {
            view.version
        };
        PollResult {
            version: Some(version.to_owned()),
            keeps_history: true,
            ..result
        }
    }

    /// Lets time pass, and runs the polls that are due every second.
    pub(super) fn pass(
        &mut self,
        time: Duration,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
        trace: &mut Trace,
    ) {
        self.now += time;
        if self.has_several && self.now >= self.polled + SECOND {
            self.polled = self.now;
            self.round(world, choices, oracle, trace);
        }
        if self.now < self.watched + SECOND {
            return;
        }
        self.watched = self.now;
        let Some(poll) = self.poll(world, choices, oracle) else {
            trace.note(self.now, || "watch: behind".to_owned());
            self.cache.change(self.cache.view.paused());
            return;
        };
        let unix_ms = self.now.as_millis() as u64;
        let step = self.node.continuity.step(poll, self.now, unix_ms);
        self.cache.change(View::after(&step, None));
        let position = self.cache.view.position();
        trace.note(self.now, || {
            format!("watch: {:?}, {position:?}", step.broke)
        });
        oracle.watched(
            step.generation,
            step.broke,
            position,
            self.node.group.rollbacks,
            world,
        );
    }

    /// Polls for the watch, at the first URL that answers and is not behind; `None` if all are.
    fn poll(
        &mut self,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
    ) -> Option<Result<Poll, PurgeCause>> {
        let mut is_behind = self.has_several && self.node.group.is_held_back();
        for url in 0..world.urls.len() {
            if !self.is_able(url, None) {
                continue;
            }
            match self.poll_at(url, world, choices, oracle) {
                Ok(poll) => return Some(Ok(poll)),
                Err(Behind::Lagging) => is_behind = true,
                Err(Behind::Down) => {}
            }
        }
        if is_behind {
            None
        } else {
            Some(Err(PurgeCause::Unreachable))
        }
    }

    fn poll_at(
        &mut self,
        url: usize,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
    ) -> Result<Poll, Behind> {
        let head = self.ask_for_watch(url, Question::Head, world, choices, oracle)?;
        let mut head = head.ok_or(Behind::Down)?;
        let newest = self.node.group.newest(head.number);
        let newest = newest.ok_or(Behind::Lagging)?;
        if newest != head.number && !self.has(Bug::WatchOfOneReplica) {
            let pinned = Question::Known(newest);
            let block = self.ask_for_watch(url, pinned, world, choices, oracle)?;
            head = block.ok_or(Behind::Down)?;
        }
        let mut found = Vec::new();
        for number in self.node.continuity.wanted(head, 0) {
            let known = Question::Known(number);
            found.extend(self.ask_for_watch(url, known, world, choices, oracle)?);
        }
        let l1 = L1::Head(None);
        let poll = self.node.continuity.poll(head, 0, found, l1);
        poll.ok_or(Behind::Down)
    }

    fn ask_for_watch(
        &mut self,
        url: usize,
        question: Question,
        world: &World,
        choices: &mut Chance,
        oracle: &mut Oracle,
    ) -> Result<Option<BlockIdentity>, Behind> {
        let answered = self.send(url, question, world, choices, oracle);
        let answered = answered.ok_or(Behind::Down)?;
        let (node, connection) = (answered.node, answered.connection);
        let block = found(answered.reply);
        let watched = match (question, block) {
            (Question::Known(number), None) => Watched::Gone(number),
            (Question::Head, Some(head)) => Watched::Head(head),
            _ => {
                self.idle[url] = Some((node, connection));
                return Ok(block);
            }
        };
        let shown = self.node.group.floor();
        let observation = Observation::Watched(url, connection, watched);
        let change = self.node.observe(observation, self.now);
        if change == Change::None {
            self.idle[url] = Some((node, connection));
            return Ok(block);
        }
        oracle.was_behind(connection);
        if !self.has_several
            && let Watched::Head(head) = watched
        {
            let went_back = matches!(change, Change::WentBack(_));
            oracle.round(shown, Some(head.number), went_back, vec![connection]);
        }
        if self.has(Bug::WatchAroundFloor) {
            return Ok(block);
        }
        Err(Behind::Lagging)
    }
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Down,
    Lagging,
}

fn found(reply: Reply) -> Option<BlockIdentity> {
    match reply {
        Reply::In(number, id) => Some(identity(number, id)),
        Reply::Missing => None,
    }
}

fn identity(number: u64, id: u32) -> BlockIdentity {
    let mut fingerprint = [0; 32];
    fingerprint[..4].copy_from_slice(&id.to_be_bytes());
    BlockIdentity {
        number,
        fingerprint,
    }
}

fn felt(hash: u32) -> Felt {
    Felt::from_limbs([u64::from(hash) + 1, 0, 0, 0]).expect("it is small")
}
