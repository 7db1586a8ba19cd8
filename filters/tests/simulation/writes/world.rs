//! The world: a chain that rolls back, URLs that are behind, a store that fails, relays that crash.
//! All chance is drawn here.

use super::Bug;
use super::chain::{Action, Chain, Taking, Tx, View, felt};
use super::config::{self, Config, Limits};
use super::floor::Floor;
use super::io::SimIo;
use super::journal::Journal;
use super::locks::Lock;
use super::machine::{Agenda, HasAgenda, Process, Shared, Slot, fill};
use super::node::{Dialect, Fate};
use super::oracle::Oracle;
use super::reads::TooLarge;
use super::regime::{Regime, Share};
use super::requests::{Reply, initial};
use crate::toolkit::Chance;
use portcullis_filters::felt::Felt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Blocks above one that is final.
pub(super) const CONFIRMATIONS: usize = 4;
/// 2026-11-25T00:00:00Z
const EPOCH_US: i64 = 1_795_564_800_000_000;

/// How far a relay's estimate of the store's clock is from it at most, in microseconds: as the store
/// assumes of other processes.
pub(super) const SKEW_US: i64 = 100_000;

/// The genesis of the chain that is not ours.
const OTHER: u64 = 1_000;

fn seconds(us: i64) -> u64 {
    u64::try_from(us / 1_000_000).expect("it is after 1970")
}

macro_rules! faults {
    ($($name:ident),* $(,)?) => {
        /// A kind of fault. A seed permits about half of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Fault { $($name),* }

        impl Fault {
            pub(super) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

faults! {
    AnswerLost, CallLost, Late, EstimateRefused, AddRefused, Reverts, UrlBehind, UrlFrozen, UrlDown, Balancer,
    Rollback, Returns, Genesis, Stranger, CommitUnknown, StoreFails, StoreFull, StoreRestarts, StoreClock,
    RelayClock, Crash, Pause, CutOff, HoursPass, Twice, UsedForIncluded, UndecidedForEver, Undecided, Held, Evicted,
    NonceAhead, Replaced, OtherHash, BadAnswer, BareReceipt, FreeReceipt, OtherBlock, TooLarge, ReadRefused,
    ReadMalformed, ContractError, OtherClass, Overtaken, DeepRollback, OftenRollback, SameGenesis, Unreverts, TwoChains, StoreClockBack,
    V2Later, Reload, Repinned, PinsFail, FaucetEmpty, Prune,
    LostTail, NoRandom, Aborted, OverFull, BelowFloor, HeadOnly, FewDrips, NonceTaken, NeverRead,
}

/// How a URL shows the chain.
pub(super) enum Mode {
    Fresh,
    Behind(usize),
    Frozen(Box<View>),
    Down,
    /// Some of its nodes are of another chain.
    TwoChains,
    /// It takes transactions without an answer to their submission.
    Mute,
    /// It states the newest head, and shows none of this many newest blocks.
    Hollow(usize),
}

/// The fate of the next commit, which has no confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lapse {
    Done,
    Undone,
}

/// An account that is never deployed.
pub(super) fn nobody() -> Felt {
    felt(0x5eed)
}

pub(super) struct Url {
    pub(super) mode: Mode,
    /// Draws a view for each call.
    pub(super) is_balancer: bool,
    /// The view that it was frozen at last, and until when.
    thawed: Option<(Box<View>, Duration)>,
}

/// A relay.
pub(super) struct Relay {
    /// Its present process; `None` while it is down.
    pub(super) io: Option<Arc<SimIo>>,
    pub(super) paused_until: Duration,
    /// Until when it does not reach its node.
    pub(super) cut_off_until: Duration,
    /// By how much its clock is wrong, in microseconds.
    pub(super) clock_us: i64,
    /// By how much its estimate of the store's clock is wrong, in microseconds.
    pub(super) skew_us: i64,
    /// How wrong that may be, as far as the relay knows.
    pub(super) error_us: i64,
    pub(super) config: Config,
    /// Its URLs before the last reload, and when that was.
    pub(super) former_urls: Option<(Vec<usize>, Duration)>,
    /// What its process has shown.
    pub(super) floor: Floor,
    /// Its requests without a response.
    pub(super) requests: Vec<Slot<Option<Reply>>>,
}

pub(super) struct World {
    agenda: Agenda<Self>,
    pub(super) chance: Chance,
    pub(super) bug: Bug,
    pub(super) enabled: Vec<Fault>,
    pub(super) fired: BTreeMap<Fault, u64>,
    /// Nothing goes wrong any longer.
    pub(super) is_healed: bool,
    pub(super) me: Option<Shared<Self>>,
    pub(super) chain: Chain,
    /// Another chain, which nodes behind the same URL may have.
    pub(super) other: Chain,
    pub(super) regime: Regime,
    pub(super) limits: Limits,
    /// The pins with which relays start.
    pub(super) variant: usize,
    pins_fail_until: Duration,
    faucet_empty_until: Duration,
    /// When a URL last had nodes of another chain.
    other_shown: Option<Duration>,
    pub(super) urls: Vec<Url>,
    pub(super) relays: Vec<Relay>,
    pub(super) journal: Journal,
    /// What a standby has, of each of the last seconds.
    pub(super) standby: VecDeque<Journal>,
    /// The process that does the chores of all, and when it was last heard of.
    pub(super) chore: Option<(Process, Duration)>,
    /// The entries of the journal whose indexes were checked.
    pub(super) checked_entries: usize,
    /// The journal as it was some seconds ago.
    pub(super) stale: Option<Journal>,
    /// The hash of each transaction that a user signed, by its text.
    pub(super) texts: BTreeMap<String, Felt>,
    /// What happens to the next commit.
    pub(super) lapse: Option<Lapse>,
    /// Until when the store refuses all writes.
    pub(super) full_until: Duration,
    store_clock_us: i64,
    pub(super) locks: BTreeMap<Felt, Lock>,
    tickets: u64,
    /// Every transaction that was signed.
    pub(super) signed: BTreeMap<Felt, Tx>,
    reverting: BTreeMap<Felt, bool>,
    /// How the node treats each transaction.
    pub(super) fates: BTreeMap<Felt, Fate>,
    pub(super) dialect: Dialect,
    /// The blocks whose receipts were asked for, by hash.
    pub(super) too_large: BTreeMap<Felt, TooLarge>,
    /// The class of each account that was asked for.
    classes: BTreeMap<Felt, Felt>,
    pub(super) oracle: Oracle,
    pub(super) is_exclusive: bool,
    /// The actions that clients have ended, and how many of them were written.
    pub(super) actions: Share,
    /// How long the next transaction of an account stays in the mempool.
    pub(super) held_next: BTreeMap<Felt, Duration>,
    /// The run is over, and the chain loses its blocks.
    pub(super) has_fallen: bool,
    /// When it lost all of them, or its newest ones.
    pub(super) fell: Option<Duration>,
}

impl HasAgenda for World {
    fn agenda(&mut self) -> &mut Agenda<Self> {
        &mut self.agenda
    }

    fn paused_until(&self, process: Process) -> Duration {
        self.relays
            .get(process)
            .map_or(Duration::ZERO, |relay| relay.paused_until)
    }
}

impl Url {
    const FRESH: Self = Self {
        mode: Mode::Fresh,
        is_balancer: false,
        thawed: None,
    };

    /// Whether it has shown a state since then that the chain may no longer have.
    pub(super) fn has(&self, action: Action, since: Duration) -> bool {
        self.frozen_views(since)
            .any(|view| view.state().has(action))
    }

    pub(super) fn frozen_views(&self, since: Duration) -> impl Iterator<Item = &View> {
        let now = match &self.mode {
            Mode::Frozen(view) => Some(&**view),
            _ => None,
        };
        let thawed = self.thawed.as_ref().filter(|(_, until)| *until >= since);
        now.into_iter().chain(thawed.map(|(view, _)| &**view))
    }

    fn change(&mut self, mode: Mode, now: Duration) {
        if let Mode::Frozen(view) = std::mem::replace(&mut self.mode, mode) {
            self.thawed = Some((view, now));
        }
    }

    /// Whether it shows a chain from before the chain started over.
    fn shows_former(&self, genesis: u64) -> bool {
        match &self.mode {
            Mode::Frozen(view) => view.genesis != genesis,
            Mode::TwoChains => true,
            Mode::Fresh | Mode::Behind(_) | Mode::Mute | Mode::Hollow(_) | Mode::Down => false,
        }
    }
}

impl World {
    pub(super) fn new(mut chance: Chance, bug: Bug) -> Self {
        let all = chance.choose(4) == 3;
        let drawn = Fault::ALL
            .iter()
            .copied()
            .filter(|_| chance.choose(2) == 1 || all);
        let enabled: Vec<Fault> = drawn.collect();
        let urls = 1 + chance.choose(3) as usize;
        let balancer = chance.choose(3) == 2 && enabled.contains(&Fault::Balancer);
        let relays = 1 + chance.choose(3) as usize;
        let is_exclusive = relays == 1 && chance.choose(2) == 1;
        let regime = Regime::drawn(&mut chance, &enabled);
        let mut world = Self::with(chance, bug, relays, urls, enabled);
        world.set_regime(regime);
        world.urls[0].is_balancer = balancer;
        world.is_exclusive = is_exclusive;
        world
    }

    /// Relays and URLs, with all faults but those of a balancer.
    pub(super) fn of(chance: Chance, bug: Bug, relays: usize, urls: usize) -> Self {
        Self::with(chance, bug, relays, urls, Fault::ALL.to_vec())
    }

    fn with(mut chance: Chance, bug: Bug, relays: usize, urls: usize, enabled: Vec<Fault>) -> Self {
        let dialect = Dialect::drawn(&mut chance, &enabled);
        let url_count = urls;
        let urls = (0..urls).map(|_| Url::FRESH);
        let settings = config::settings(&mut Chance::of_list(&[]), Regime::default());
        let config = Config {
            settings,
            urls: (0..url_count).collect(),
        };
        let relay = || Relay {
            config: config.clone(),
            former_urls: None,
            io: None,
            paused_until: Duration::ZERO,
            cut_off_until: Duration::ZERO,
            clock_us: 0,
            skew_us: 0,
            error_us: 0,
            floor: Floor::default(),
            requests: Vec::new(),
        };
        Self {
            agenda: Agenda::new(),
            chance,
            bug,
            enabled,
            fired: BTreeMap::new(),
            is_healed: false,
            me: None,
            chain: Chain::new(0, initial(true), CONFIRMATIONS, seconds(EPOCH_US)),
            other: Chain::new(OTHER, initial(true), CONFIRMATIONS, seconds(EPOCH_US)),
            regime: Regime::default(),
            limits: Limits::of(&settings),
            variant: 0,
            pins_fail_until: Duration::ZERO,
            faucet_empty_until: Duration::ZERO,
            other_shown: None,
            urls: urls.collect(),
            relays: (0..relays).map(|_| relay()).collect(),
            journal: Journal::new(bug),
            standby: VecDeque::new(),
            chore: None,
            checked_entries: 0,
            stale: None,
            texts: BTreeMap::new(),
            lapse: None,
            full_until: Duration::ZERO,
            store_clock_us: EPOCH_US,
            locks: BTreeMap::new(),
            tickets: 0,
            signed: BTreeMap::new(),
            reverting: BTreeMap::new(),
            fates: BTreeMap::new(),
            dialect,
            too_large: BTreeMap::new(),
            classes: BTreeMap::new(),
            oracle: Oracle::default(),
            is_exclusive: false,
            actions: Share::default(),
            held_next: BTreeMap::new(),
            has_fallen: false,
            fell: None,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.agenda.now
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.agenda.now;
        self.oracle.trace(now, line);
    }

    /// The journal as reads see it.
    pub(super) fn read(&self) -> &Journal {
        self.stale.as_ref().unwrap_or(&self.journal)
    }

    /// Draws whether a fault fires, on average once in `one_in` calls.
    pub(super) fn fires(&mut self, fault: Fault, one_in: u32) -> bool {
        let is_drawn = self.chance.choose(one_in) == one_in - 1;
        let fires = is_drawn && self.permits(fault);
        if fires {
            self.count(fault);
        }
        fires
    }

    /// Whether a fault may happen.
    pub(super) fn permits(&self, fault: Fault) -> bool {
        !self.is_healed && self.enabled.contains(&fault)
    }

    /// The class of an account, drawn once.
    pub(super) fn class_of(&mut self, address: Felt) -> Option<Felt> {
        if address == nobody() {
            return None;
        }
        if !self.classes.contains_key(&address) {
            let is_other = self.fires(Fault::OtherClass, 12);
            let pinned = super::requests::PINS.account_class;
            let class = if is_other { felt(0x07e5) } else { pinned };
            self.classes.insert(address, class);
        }
        self.classes.get(&address).copied()
    }

    /// Leaves the faults that a run selects.
    pub(super) fn select(&mut self, options: &super::options::Options) {
        options.select(&mut self.enabled);
        let enabled = self.enabled.clone();
        self.dialect.restrict(&enabled);
        self.urls[0].is_balancer &= enabled.contains(&Fault::Balancer);
        let mut regime = self.regime;
        regime.restrict(&enabled);
        if regime != self.regime {
            self.fired.clear();
            self.set_regime(regime);
        }
    }

    /// Counts a fault that follows from how the world was drawn.
    pub(super) fn count(&mut self, fault: Fault) {
        *self.fired.entry(fault).or_default() += 1;
    }

    /// Whether a transaction reverts. One that does may succeed when it is executed again.
    pub(super) fn reverts(&mut self, hash: Felt) -> bool {
        let reverts = match self.reverting.get(&hash).copied() {
            Some(true) => !self.fires(Fault::Unreverts, 2),
            Some(false) => return false,
            None => self.fires(Fault::Reverts, 30),
        };
        self.reverting.insert(hash, reverts);
        reverts
    }

    /// Draws a duration in milliseconds; `from` is benign.
    pub(super) fn millis(&mut self, from: u64, below: u64) -> Duration {
        let more = self
            .chance
            .choose(u32::try_from(below - from).expect("it is short"));
        Duration::from_millis(from + u64::from(more))
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Microseconds since 1970 by the store's clock.
    pub(super) fn clock_us(&self) -> i64 {
        self.store_clock_us + i64::try_from(self.agenda.now.as_micros()).expect("it is short")
    }

    /// Seconds since 1970 by the clocks of the chain's nodes.
    pub(super) fn chain_time(&self) -> u64 {
        seconds(EPOCH_US) + self.agenda.now.as_secs()
    }

    fn set_regime(&mut self, regime: Regime) {
        self.regime = regime;
        self.oracle.judges_progress_only = regime.loses_tail;
        let initial = initial(!regime.is_v2_later);
        self.chain = Chain::new(0, initial, regime.final_depth(), self.chain_time());
        if regime.is_v2_later {
            self.count(Fault::V2Later);
        }
        let settings = config::settings(&mut Chance::of_list(&[]), regime);
        for relay in &mut self.relays {
            relay.config.settings = settings;
        }
        self.limits = Limits::of(&settings);
        if regime.has_few_drips {
            self.count(Fault::FewDrips);
        }
    }

    pub(super) fn epoch(&self) -> String {
        format!("g{}", self.chain.genesis)
    }

    /// The view of a URL; `None` if it is down.
    pub(super) fn view(&mut self, url: usize) -> Option<View> {
        let behind = if self.urls[url].is_balancer {
            self.chance.choose(3) as usize
        } else {
            0
        };
        let of = |behind: usize, chain: &Chain| {
            let mut view = chain.view();
            if behind > 0 {
                view.shown = view.shown.saturating_sub(behind).max(1);
                view.pending = None;
            }
            view
        };
        if self.is_healed {
            return Some(self.chain.view());
        }
        match &self.urls[url].mode {
            Mode::Fresh | Mode::Mute => Some(of(behind, &self.chain)),
            Mode::Behind(blocks) | Mode::Hollow(blocks) => Some(of(*blocks, &self.chain)),
            Mode::Frozen(view) => Some(View::clone(view)),
            Mode::TwoChains => {
                let is_other = self.chance.choose(2) == 1;
                Some(if is_other {
                    self.other.view()
                } else {
                    self.chain.view()
                })
            }
            Mode::Down => {
                if self.urls.iter().all(|url| matches!(url.mode, Mode::Down)) {
                    self.oracle.silent = self.oracle.silent.max(Some(self.now()));
                }
                None
            }
        }
    }

    /// The URL that serves calls of a relay.
    pub(super) fn serving(&mut self, relay: Process) -> Option<usize> {
        let urls = self.relays[relay].config.urls.clone();
        self.choose_serving(relay, &urls)
    }

    /// The URLs of a relay that have a say.
    pub(super) fn urls_of(&self, relay: Process) -> Vec<usize> {
        self.voters(&self.relays[relay].config.urls)
    }

    /// The URLs of a relay that had a say before a reload since then.
    pub(super) fn former_urls_of(&self, relay: Process, since: Duration) -> Option<Vec<usize>> {
        let former = self.relays[relay].former_urls.as_ref();
        let (urls, _) = former.filter(|(_, until)| *until >= since)?;
        Some(self.voters(urls))
    }

    pub(super) fn is_faucet_empty(&self) -> bool {
        !self.is_healed && self.now() < self.faucet_empty_until
    }

    /// Whether the faucet was empty since then, or lately.
    pub(super) fn was_faucet_empty(&self, since: Duration) -> bool {
        self.faucet_empty_until + Duration::from_secs(10) >= since
    }

    /// Whether an account that a relay asked for has another class than the pinned one.
    pub(super) fn has_other_class(&self) -> bool {
        let pinned = super::requests::PINS.account_class;
        self.classes.values().any(|class| *class != pinned)
    }

    /// Whether a URL had nodes of another chain since then.
    pub(super) fn shown_other_since(&self, since: Duration) -> bool {
        self.other_shown.is_some_and(|at| at >= since)
    }

    /// Whether no transaction of a settled block is taken back.
    pub(super) fn judges_money(&self) -> bool {
        self.regime.judges_money() && !self.has_fallen
    }

    pub(super) fn are_pins_broken(&self) -> bool {
        !self.is_healed && self.now() < self.pins_fail_until
    }

    /// Closes a block, and lets happen to the chain what happens about once a block.
    pub(super) fn close_block(&mut self) {
        let time = self.chain_time();
        self.chain.close_block(time);
        self.other.close_block(time);
        self.note_states();
        self.note_conflicts();
        self.note_heads();
        if self.fires(Fault::Rollback, self.regime.rollback_one_in()) {
            let depth = 1 + self.chance.choose(self.regime.deepest()) as usize;
            self.roll_back(depth);
        }
        if self.fires(Fault::Genesis, 150) {
            self.start_over(self.chain.genesis + 1);
        }
        if self.regime.is_deep && self.fires(Fault::SameGenesis, 100) {
            self.start_over(self.chain.genesis);
        }
        if self.fires(Fault::Stranger, 60) {
            let accounts = super::requests::PINS.accounts;
            let faucet = accounts.faucet.unwrap_or(accounts.owner);
            let senders = [accounts.owner, accounts.verifier, faucet];
            let sender = self.chance.pick(&senders);
            self.use_nonce(sender);
        }
        for url in 0..self.urls.len() {
            self.change_mode(url);
        }
        let is_mixed = |url: &Url| matches!(url.mode, Mode::TwoChains);
        if self.urls.iter().any(is_mixed) {
            self.other_shown = Some(self.now());
        }
        if self
            .urls
            .iter()
            .any(|url| url.shows_former(self.chain.genesis))
        {
            self.oracle.former_shown = Some(self.now());
        }
        if self.judges_money() {
            let (chain, journal) = (&self.chain, &self.journal);
            let broken = self.oracle.after_block(chain, journal, self.limits);
            self.oracle.report(broken);
        }
    }

    /// A stranger has the key of an account, and uses its next nonce.
    pub(super) fn use_nonce(&mut self, sender: Felt) {
        let nonce = self.chain.nonce(sender);
        let tx = Tx {
            hash: felt(1 << 60 | self.ticket()),
            sender,
            nonce,
            action: Action::Other,
        };
        let replaces = Taking {
            replaces: true,
            ..Taking::default()
        };
        let _added = self.chain.add(tx, replaces);
        self.note(|| format!("a stranger uses nonce {nonce} of {sender}"));
    }

    pub(super) fn start_over(&mut self, genesis: u64) {
        let (now, time) = (self.now(), self.chain_time());
        self.chain.restart(genesis, now, time);
        self.oracle.former_shown = Some(now);
        self.note(|| format!("the chain starts over as g{genesis}"));
        self.ask_again();
    }

    pub(super) fn roll_back(&mut self, depth: usize) {
        let now = self.now();
        if depth > CONFIRMATIONS {
            self.count(Fault::DeepRollback);
        }
        if self.regime.is_often {
            self.count(Fault::OftenRollback);
        }
        let gone = self.chain.roll_back(depth, now);
        self.note(|| format!("a rollback of {depth} blocks"));
        let returns = self.fires(Fault::Returns, 2);
        for tx in gone {
            if returns && self.chance.choose(5) != 0 {
                let late = self.millis(1, 8_000);
                self.agenda.after(late, move |world: &mut Self| {
                    let taking = Taking {
                        is_unlucky: world.reverts(tx.hash),
                        ..Taking::default()
                    };
                    if world.chain.add(tx, taking).is_ok() {
                        world.note(|| format!("{} returns", tx.hash));
                    }
                });
            }
        }
    }

    fn change_mode(&mut self, url: usize) {
        let mode = if self.fires(Fault::UrlBehind, 12) {
            Mode::Behind(1 + self.chance.choose(3) as usize)
        } else if self.fires(Fault::UrlFrozen, 30) {
            Mode::Frozen(Box::new(self.chain.view()))
        } else if self.fires(Fault::UrlDown, 30) {
            Mode::Down
        } else if self.fires(Fault::HeadOnly, 40) {
            // the others are behind meanwhile
            for other in 0..self.urls.len() {
                let behind = Mode::Behind(3 + self.chance.choose(4) as usize);
                self.set_mode(other, behind);
            }
            Mode::Hollow(3 + self.chance.choose(4) as usize)
        } else if self.fires(Fault::TwoChains, 150) {
            Mode::TwoChains
        } else if self.chance.choose(4) == 0 {
            Mode::Fresh
        } else {
            return;
        };
        self.set_mode(url, mode);
    }

    pub(super) fn set_mode(&mut self, url: usize, mode: Mode) {
        let now = self.now();
        self.urls[url].change(mode, now);
    }

    /// Something that happens to the machines, about once a second.
    pub(super) fn disturb(&mut self) {
        let relay = self.chance.choose(self.relays.len() as u32) as usize;
        if self.bug == Bug::StaleReads && self.now().as_secs().is_multiple_of(4) {
            self.stale = Some(self.journal.clone());
        }
        if self.fires(Fault::Crash, 60) {
            self.crash(relay);
        }
        if self.fires(Fault::Pause, 90) {
            let pause = self.millis(1_000, 90_000);
            self.relays[relay].paused_until = self.now() + pause;
            self.note(|| format!("relay {relay} is paused for {pause:?}"));
        }
        if self.fires(Fault::RelayClock, 90) {
            let minutes = i64::from(self.chance.choose(20)) - 10;
            self.relays[relay].clock_us = minutes * 60_000_000;
            // slow answers bound the clock loosely, and the estimate is within the bounds
            let slack = [0, 1_000, 50_000, 2_500_000][self.chance.choose(4) as usize];
            let skew = i64::from(self.chance.choose(201)) - 100;
            self.relays[relay].skew_us = skew * SKEW_US / 100;
            self.relays[relay].error_us = self.relays[relay].skew_us.abs() + slack;
            self.note(|| format!("relay {relay} takes the store's clock for {skew} ms ahead"));
        }
        self.disturb_store();
        if self.fires(Fault::Reload, 60) {
            self.reload(relay);
        }
        if self.fires(Fault::Repinned, 200) {
            self.repin();
        }
        if self.fires(Fault::PinsFail, 200) {
            self.pins_fail_until = self.now() + self.millis(500, 30_000);
            self.note(|| "pins do not hold for a while".to_owned());
        }
        if self.fires(Fault::FaucetEmpty, 200) {
            self.faucet_empty_until = self.now() + self.millis(500, 30_000);
            self.note(|| "the faucet is empty for a while".to_owned());
        }
        if self.fires(Fault::StoreRestarts, 120) {
            self.lose_locks();
        }
        if self.fires(Fault::StoreFull, 150) {
            self.full_until = self.now() + self.millis(500, 8_000);
        }
        if self.fires(Fault::StoreClock, 300) {
            let minutes = i64::from(self.chance.choose(60));
            self.store_clock_us += minutes * 60_000_000;
            self.note(|| format!("the store's clock is set forward by {minutes} minutes"));
        }
        if self.fires(Fault::StoreClockBack, 300) {
            let seconds = i64::from(self.chance.choose(3_600));
            self.store_clock_us -= seconds * 1_000_000;
            self.note(|| format!("the store's clock is set back by {seconds} seconds"));
        }
        if self.fires(Fault::HoursPass, 200) {
            let hours = 1 + u64::from(self.chance.choose(30));
            let before = self.now();
            self.agenda.skip(Duration::from_secs(hours * 3_600));
            self.carry_conflicts_over(before);
            // what was under way may be for a former chain
            self.oracle.former_shown = Some(self.now());
            self.oracle.leapt = Some(self.now());
            self.note(|| format!("{hours} hours pass"));
        }
    }

    /// The store restarts.
    pub(super) fn lose_locks(&mut self) {
        self.locks.clear();
        self.chore = None;
        self.oracle.locks_lost = Some(self.now());
        self.note(|| "the store restarts: all locks are lost".to_owned());
    }

    /// A relay is cut off from the network for a while, and its sessions with the store end.
    pub(super) fn cut_off(&mut self, relay: Process) {
        self.lose_locks();
        self.relays[relay].cut_off_until = self.now() + self.millis(1_000, 8_000);
        self.note(|| format!("relay {relay} is cut off from its node"));
    }

    /// A relay ends without a word, and comes back later.
    pub(super) fn crash(&mut self, relay: Process) {
        if self.relays[relay].io.take().is_none() {
            return;
        }
        self.note(|| format!("relay {relay} crashes"));
        let now = self.now();
        self.oracle.crashed(relay, now);
        self.agenda.kill(relay);
        self.release_chore(relay);
        self.relays[relay].paused_until = Duration::ZERO;
        for request in std::mem::take(&mut self.relays[relay].requests) {
            fill(&mut self.agenda, &request, None);
        }
        let down = self.millis(10, 20_000);
        self.agenda
            .after(down, move |world: &mut Self| world.start(relay));
    }

    /// Starts the process of a relay.
    pub(super) fn start(&mut self, relay: Process) {
        if self.relays[relay].io.is_some() {
            return;
        }
        let Some(me) = self.me.clone() else { return };
        let io = Arc::new(SimIo::new(relay, me, config::pins(self.variant)));
        self.relays[relay].io = Some(Arc::clone(&io));
        self.relays[relay].floor = Floor::default();
        self.agenda.start(relay, super::clients::background(io));
    }

    /// A day passes for the store.
    pub(super) fn pass_a_day(&mut self) {
        self.store_clock_us += 25 * 3_600_000_000;
        self.note(|| "a day passes".to_owned());
    }

    /// Nothing goes wrong any longer.
    pub(super) fn heal(&mut self) {
        self.take_nonces();
        self.note(|| "nothing goes wrong any longer".to_owned());
        self.is_healed = true;
        let now = self.now();
        for url in &mut self.urls {
            url.change(Mode::Fresh, now);
            url.is_balancer = false;
        }
        for relay in &mut self.relays {
            relay.paused_until = Duration::ZERO;
            relay.cut_off_until = Duration::ZERO;
        }
        self.let_go_of_own();
        self.chain.activate_v2();
        self.other.activate_v2();
        self.variant = 0;
        for relay in 0..self.relays.len() {
            let io = self.relays[relay].io.as_ref();
            if io.is_some_and(|io| !std::ptr::eq(io.pins, config::pins(0))) {
                self.crash(relay);
            }
        }
    }
}
