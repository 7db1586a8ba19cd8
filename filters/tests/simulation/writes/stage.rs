//! The world keeps the contract of `Io` as the relay's driver does: the suite in it, without a fault
//! but those that a case makes.

use super::Bug;
use super::chain::SELECTORS;
use super::io::SimIo;
use super::machine::{Machine, Process, Shared};
use super::requests::PINS;
use super::urls::Mode as UrlMode;
use super::world::{Lapse, World, nobody};
use crate::contract::{Commit, Effect, Mode, Stage};
use crate::toolkit::Chance;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId};
use portcullis_filters::tx::Call;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How many relays share the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relays {
    One,
    Two,
}

macro_rules! on_one_relay {
    ($($module:ident: $($case:ident)*;)*) => {
        $($(
            #[test]
            fn $case() {
                super::run(super::Relays::One, crate::contract::$module::$case);
            }
        )*)*
    };
}

macro_rules! on_two_relays {
    ($($module:ident: $($case:ident)*;)*) => {
        $($(
            #[test]
            fn $case() {
                super::run(super::Relays::Two, crate::contract::$module::$case);
            }
        )*)*
    };
}

mod one_relay {
    crate::contract::cases!(on_one_relay);
}

mod two_relays {
    crate::contract::cases!(on_two_relays);
    crate::contract::shared_cases!(on_two_relays);
}

/// Relays in a world.
struct WorldStage {
    world: Shared<World>,
    relays: Vec<Arc<SimIo>>,
}

/// Runs a case in virtual time: it is polled after each event.
fn run(relays: Relays, case: impl AsyncFnOnce(&WorldStage)) {
    let count: Process = match relays {
        Relays::One => 1,
        Relays::Two => 2,
    };
    let mut world = World::of(Chance::of_list(&[]), Bug::None, count, 2);
    world.is_exclusive = relays == Relays::One;
    let world = Shared::new(world);
    let relay = |relay| Arc::new(SimIo::new(relay, world.clone(), &PINS));
    let stage = WorldStage {
        world: world.clone(),
        relays: (0..count).map(relay).collect(),
    };
    let mut machine = Machine::new(world);
    let mut case = pin!(case(&stage));
    let mut context = Context::from_waker(Waker::noop());
    while case.as_mut().poll(&mut context) == Poll::Pending {
        let before = machine.steps;
        machine.run(|_, steps| steps > before);
        assert!(machine.steps > before, "nothing is due");
    }
}

impl Stage for WorldStage {
    type Io = SimIo;

    fn io(&self) -> &Arc<SimIo> {
        &self.relays[0]
    }

    fn other(&self) -> Option<&Arc<SimIo>> {
        self.relays.get(1)
    }

    fn trace(&self) {}

    fn nobody(&self) -> Felt {
        nobody()
    }

    fn effect(&self, number: u64) -> Effect {
        let [identity, account] = [number, number + 0x7000].map(Felt::from);
        let to = PINS.contracts.registry;
        Effect {
            call: Call {
                to,
                selector: SELECTORS.register,
                args: vec![identity, account],
            },
            to,
            view: SELECTORS.identity_of,
            args: vec![account],
        }
    }

    async fn woken(&self) {
        self.io().woken().await;
    }

    async fn close_block(&self) {
        let mut world = self.world.lock();
        let time = world.chain_time();
        world.chain.close_block(time);
    }

    async fn roll_back(&self, blocks: u64) {
        let depth = usize::try_from(blocks).expect("it is small");
        self.world.lock().roll_back(depth);
    }

    async fn start_over(&self) {
        let mut world = self.world.lock();
        let genesis = world.chain.genesis + 1;
        world.start_over(genesis);
    }

    async fn set_url(&self, url: usize, mode: Mode) {
        let mode = match mode {
            Mode::Up => UrlMode::Fresh,
            Mode::Down => UrlMode::Down,
            Mode::Mute => UrlMode::Mute,
            Mode::Behind(blocks) => UrlMode::Behind(usize::try_from(blocks).expect("it is small")),
        };
        self.world.lock().set_mode(url, mode);
    }

    async fn stored(&self, id: IntentId) -> Option<Intent> {
        self.world.lock().journal.tables.intents.get(&id).cloned()
    }

    async fn end_sessions(&self) {
        self.world.lock().lose_locks();
    }

    async fn cut_commit(&self, commit: Commit) {
        let lapse = match commit {
            Commit::Done => Lapse::Done,
            Commit::Undone => Lapse::Undone,
        };
        self.world.lock().lapse = Some(lapse);
    }
}
