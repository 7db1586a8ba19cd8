//! The relay's proofs of its pins, as the real prover makes them: all of them or none, and which of
//! them fail.

use super::io::{SimIo, Statement};
use super::requests::PINS;
use portcullis_filters::txm::io::JournalIo as _;
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::settings::Required;
use std::time::Duration;

/// How long a proof is valid, and one that fails.
const VALID: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
/// How long another chain must be reported before it is in force.
pub(super) const PATIENCE_US: i64 = 10_000_000;

/// Which pins hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// V2 verification is permanent.
    pub(super) v2: bool,
    /// The faucet can pay.
    pub(super) money: bool,
    /// The others.
    pub(super) others: bool,
    /// The relays of the store write to this chain.
    shared: bool,
}

/// A proof.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    /// The epoch that was found, whether or not the pins hold.
    pub(super) epoch: Option<String>,
    holding: Holding,
    until: Duration,
}

impl Holding {
    fn proves(self, required: Required) -> bool {
        let v2 = self.v2 || required == Required::AllButV2;
        v2 && self.money && self.others && self.shared
    }
}

impl Proof {
    /// The epoch, if the pins permit a write.
    pub(super) fn proven(&self, required: Required) -> Option<String> {
        let epoch = self.epoch.clone()?;
        if self.holding.proves(required) {
            Some(epoch)
        } else {
            None
        }
    }

    /// The refusal of a write that needs more than what holds.
    pub(super) fn refusal(&self, required: Required) -> NotSent {
        let Holding {
            v2, others, shared, ..
        } = self.holding;
        if required == Required::Drip && self.epoch.is_some() && v2 && others && shared {
            return NotSent::FaucetEmpty;
        }
        NotSent::PinsUnproven
    }
}

impl SimIo {
    /// A valid proof, made now if none is cached.
    pub(super) async fn prove(&self) -> Proof {
        let now = self.world.now();
        let cached = self.proof.lock().expect("no task panics").clone();
        if let Some(proof) = cached
            && now < proof.until
        {
            return proof;
        }
        let is_right = self.pins.contracts == PINS.contracts;
        let read = self.ask(move |world, view| {
            let holding = Holding {
                v2: view.state().v2,
                money: !world.is_faucet_empty(),
                others: is_right && !world.are_pins_broken(),
                shared: false,
            };
            Ok((format!("g{}", view.genesis), view.head().number, holding))
        });
        let mut proof = Proof {
            epoch: None,
            holding: Holding::default(),
            until: now + RETRY,
        };
        if let Ok((epoch, head, holding)) = read.await {
            let found = Some((epoch.clone(), head));
            *self.found.lock().expect("no task panics") = found;
            proof.holding = holding;
            proof.holding.shared = true;
            if holding.others && holding.money {
                proof.holding.shared = self.agree(epoch.clone()).await;
            }
            proof.epoch = Some(epoch);
        }
        if proof.holding.proves(Required::All) {
            proof.until = now + VALID;
        }
        *self.proof.lock().expect("no task panics") = Some(proof.clone());
        proof
    }

    /// Whether the relays of the store write to this epoch.
    async fn agree(&self, epoch: String) -> bool {
        let reported = epoch.clone();
        let now_us = self.clock_us();
        let agreed = self.query(Statement::Write, move |world| {
            let before = world.journal.tables.agreement.clone().map(|it| it.epoch);
            let agreed = world.journal.tables.agree(&reported, now_us, PATIENCE_US);
            world.judge_agreement(&reported, before.as_deref(), now_us);
            agreed
        });
        agreed.await.is_ok_and(|expected| expected == epoch)
    }
}
