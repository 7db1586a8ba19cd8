//! The world: a chain that rolls back, URLs that are behind, a store that fails, relays that crash.
//! All chance is drawn here.

use super::Bug;
use super::chain::{Chain, Tx, felt};
use super::config::{self, Config, Limits};
use super::floor::Floor;
use super::gap::Gap;
use super::groups::Group;
use super::io::SimIo;
use super::journal::Journal;
use super::locks::Lock;
use super::machine::{Agenda, HasAgenda, Process, Shared, Slot};
use super::node::{Dialect, Fate};
use super::oracle::Oracle;
use super::reads::TooLarge;
use super::receiver::Receiver;
use super::regime::{Regime, Share};
use super::requests::{Reply, initial};
use super::store::Chore;
use super::urls::Url;
use crate::toolkit::Chance;
use portcullis_filters::felt::Felt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    LostTail, NoRandom, Aborted, OverFull, BelowFloor, HeadOnly, FewDrips, FewFees, NonceTaken, NeverRead,
    GoneAtOnce, Rivalled, JournalHeld, Grouped, GroupUnknown, OneFails, Postponed,
    ReceiverDead, ReceiverSlow, ReceiverErrs, ReceiverRefuses,
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
    /// What its process has shown.
    pub(super) floor: Floor,
    /// Its requests without a response.
    pub(super) requests: Vec<Slot<Option<Reply>>>,
    /// Its commands that wait for the end of the journal.
    pub(super) group: Group,
}

pub(super) struct World {
    pub(super) agenda: Agenda<Self>,
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
    pub(super) pins_fail_until: Duration,
    pub(super) faucet_empty_until: Duration,
    /// When a URL last had nodes of another chain.
    pub(super) other_shown: Option<Duration>,
    pub(super) urls: Vec<Url>,
    pub(super) relays: Vec<Relay>,
    pub(super) journal: Journal,
    /// What a standby has, of each of the last seconds.
    pub(super) standby: VecDeque<Journal>,
    /// The process that does each chore, and when it was last heard of.
    pub(super) chores: BTreeMap<Chore, (Process, Duration)>,
    pub(super) receiver: Receiver,
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
    pub(super) store_clock_us: i64,
    pub(super) locks: BTreeMap<Felt, Lock>,
    tickets: u64,
    /// The transactions whose receipts were read.
    pub(super) receipts_read: BTreeSet<Felt>,
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
    /// A gap in the nonces of an account, while its request is repeated.
    pub(super) gap: Option<Gap>,
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
        world.draw_pins();
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
            io: None,
            paused_until: Duration::ZERO,
            cut_off_until: Duration::ZERO,
            clock_us: 0,
            skew_us: 0,
            error_us: 0,
            floor: Floor::default(),
            requests: Vec::new(),
            group: Group::default(),
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
            chores: BTreeMap::new(),
            receiver: Receiver::default(),
            checked_entries: 0,
            stale: None,
            texts: BTreeMap::new(),
            lapse: None,
            full_until: Duration::ZERO,
            store_clock_us: EPOCH_US,
            locks: BTreeMap::new(),
            tickets: 0,
            receipts_read: BTreeSet::new(),
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
            gap: None,
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
        if !enabled.contains(&Fault::Repinned) {
            self.variant = 0;
        }
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

    /// Whether a transaction reverts, on average one in `one_in`. One that does may succeed when it
    /// is executed again.
    pub(super) fn reverts(&mut self, hash: Felt, one_in: u32) -> bool {
        let reverts = match self.reverting.get(&hash).copied() {
            Some(true) => !self.fires(Fault::Unreverts, 2),
            Some(false) => return false,
            None => self.fires(Fault::Reverts, one_in),
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
        if regime.has_few_fees {
            self.count(Fault::FewFees);
        }
    }

    pub(super) fn epoch(&self) -> String {
        format!("g{}", self.chain.genesis)
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
        self.now() < self.pins_fail_until
    }
}
