//! How the relays are configured: settings that a reload changes, each relay at its own time, and pins
//! that a start applies.

use super::regime::Regime;
use super::requests::PINS;
use super::world::{CONFIRMATIONS, Fault, World};
use crate::toolkit::Chance;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::Budgets;
use portcullis_filters::txm::settings::{Accounts, Pins, Settings};
use std::sync::LazyLock;
use std::time::Duration;

const HOUR: u64 = 3_600;
/// The highest fee that a transaction may state, in fri: the estimates of the world are below it.
const MAX_FEE: u128 = 1_000_000_000_000_000_000;

/// The configuration of a relay that is in force.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) settings: Settings,
    /// The node's URLs, in order of preference.
    pub(super) urls: Vec<usize>,
}

/// The loosest limits that were ever in force in a world: more must never be spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) cooldown: Duration,
    pub(super) longest_cooldown: Duration,
    pub(super) drips: u32,
    pub(super) fewest_drips: u32,
    /// `None` if one relay had no limit.
    pub(super) fees: Option<u128>,
    /// `None` if no relay had a limit.
    pub(super) lowest_fees: Option<u128>,
}

impl Limits {
    pub(super) fn of(settings: &Settings) -> Self {
        let drips = settings.budgets.drips.unwrap_or(u32::MAX);
        Self {
            cooldown: settings.faucet_cooldown,
            longest_cooldown: settings.faucet_cooldown,
            drips,
            fewest_drips: drips,
            fees: settings.budgets.fees,
            lowest_fees: settings.budgets.fees,
        }
    }

    fn loosen(&mut self, settings: &Settings) {
        let other = Self::of(settings);
        self.cooldown = self.cooldown.min(other.cooldown);
        self.longest_cooldown = self.longest_cooldown.max(other.cooldown);
        self.drips = self.drips.max(other.drips);
        self.fewest_drips = self.fewest_drips.min(other.drips);
        self.fees = self.fees.zip(other.fees).map(|(one, other)| one.max(other));
        let limits = [self.lowest_fees, other.lowest_fees];
        self.lowest_fees = limits.into_iter().flatten().min();
    }
}

/// Settings; the first choices are those of most worlds.
pub(super) fn settings(chance: &mut Chance, regime: Regime) -> Settings {
    let drips = if regime.has_few_drips {
        [2, 1, 2]
    } else {
        [12, 3, 40]
    };
    // a write takes about a two-hundredth
    let fees = if regime.has_few_fees {
        [Some(MAX_FEE / 50), Some(MAX_FEE / 100), Some(MAX_FEE / 75)]
    } else {
        [None, Some(MAX_FEE / 10), Some(MAX_FEE / 2)]
    };
    Settings {
        faucet_amount: chance.pick(&[5, 6]),
        faucet_cooldown: Duration::from_secs(HOUR * chance.pick(&[20, 1, 30])),
        max_fee: MAX_FEE,
        max_l2_gas: 1_000_000_000,
        recovery_cancel_window: Duration::from_secs(chance.pick(&[60, 10])),
        receipt_timeout: Duration::from_secs(chance.pick(&[10, 2])),
        confirmations: CONFIRMATIONS as u64 + u64::from(chance.choose(3)),
        budgets: Budgets {
            drips: Some(chance.pick(&drips)),
            fees: chance.pick(&fees),
        },
    }
}

/// What a relay may be started with; the first is right, and proves its pins with the second and the
/// third, too.
static VARIANTS: LazyLock<[Pins; 4]> = LazyLock::new(|| {
    let with_faucet = |faucet| Pins {
        accounts: Accounts {
            faucet,
            ..PINS.accounts
        },
        ..PINS.clone()
    };
    let mut other_card = PINS.clone();
    other_card.contracts.card = Felt::from(0xb7_u64);
    [
        PINS.clone(),
        with_faucet(None),
        with_faucet(Some(Felt::from(0xa4_u64))),
        other_card,
    ]
});

/// The variant whose drips the owner signs.
const WITHOUT_FAUCET: usize = 1;

/// The pins of a variant.
pub(super) fn pins(variant: usize) -> &'static Pins {
    &VARIANTS[variant]
}

/// Whether a relay signs with this account, or did so before.
pub(super) fn is_own(address: Felt) -> bool {
    VARIANTS.iter().any(|pins| pins.signs_with(address))
}

impl World {
    /// A relay applies another configuration.
    pub(super) fn reload(&mut self, relay: usize) {
        let settings = settings(&mut self.chance, self.regime);
        self.limits.loosen(&settings);
        let first = self.chance.choose(self.urls.len() as u32) as usize;
        let mut urls: Vec<usize> = (0..self.urls.len()).collect();
        urls.rotate_left(first);
        urls.truncate(1 + self.chance.choose(self.urls.len() as u32) as usize);
        self.note(|| format!("relay {relay} reloads: urls {urls:?}, {settings:?}"));
        self.relays[relay].config = Config { settings, urls };
    }

    /// In some worlds, the first relays have no faucet: its drips are signed by the owner, and may be
    /// in doubt when there is one.
    pub(super) fn draw_pins(&mut self) {
        if self.fires(Fault::Repinned, 2) {
            self.variant = WITHOUT_FAUCET;
        }
    }

    /// Relays that start from now on have other pins.
    pub(super) fn repin(&mut self) {
        self.variant = self.chance.choose(VARIANTS.len() as u32) as usize;
        let variant = self.variant;
        self.note(|| format!("relays start with pins {variant} from now on"));
    }
}
