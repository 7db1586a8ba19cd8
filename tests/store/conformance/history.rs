//! Drawn histories of the relay: intents of three epochs of the chain and what is seen of them,
//! keys, and which epoch is in force.

use super::model::{Command, Model};
use crate::tables::DRIP;
use crate::toolkit::Chance;
use crate::wire::Cut;
use crate::world::{NOW, felt, token};
use portcullis_store::{Budgets, Change, Inclusion, Intent, NewIntent};
use std::time::Duration;

const STRK: u128 = 1_000_000_000_000_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const EPOCHS: [&str; 3] = ["epoch-1", "epoch-2", "epoch-3"];

#[derive(Debug)]
pub(super) struct Step {
    pub(super) command: Command,
    pub(super) now_us: i64,
    /// The process that performs it.
    pub(super) store: usize,
    /// Where it loses the database.
    pub(super) cut: Option<Cut>,
}

/// The state from which the next step is drawn.
pub(super) struct History {
    now_us: i64,
    /// The epoch in force, unless its report was cut; that of most new intents.
    epoch: &'static str,
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            now_us: NOW,
            epoch: EPOCHS[0],
        }
    }

    /// Always the same number of choices.
    pub(super) fn step(&mut self, chance: &mut Chance, model: &Model) -> Step {
        let store = chance.choose(2) as usize;
        let cut = Cut::draw(chance);
        let cut = chance.pick(&[None, None, None, Some(cut)]);
        self.now_us += chance.pick(&[0, 1, 60_000_000, 600_000_000, 3_600_000_000]);
        Step {
            command: self.command(chance, model),
            now_us: self.now_us,
            store,
            cut,
        }
    }

    /// Commands that are performed concurrently; mostly none.
    pub(super) fn concurrent(&mut self, chance: &mut Chance, model: &Model) -> Vec<Step> {
        let number = chance.pick(&[0, 0, 0, 2, 3, 4]);
        let steps = (0..4).map(|_| self.step(chance, model));
        let waits = |step: &Step| matches!(step.command, Command::Apply(..) | Command::Intend(_));
        let mut steps: Vec<Step> = steps.filter(waits).collect();
        steps.truncate(number);
        for step in &mut steps {
            step.cut = None;
        }
        steps
    }

    fn command(&mut self, chance: &mut Chance, model: &Model) -> Command {
        let name = chance.pick(&["k", "l"]);
        let (digest, owner) = (digest(chance), token(chance.pick(&[1, 2])));
        let back = chance.pick(&[0, 0, 0, 1, 2]);
        let epoch = chance.pick(&EPOCHS);
        let patience = chance.pick(&[HOUR, Duration::ZERO]);
        let kind = chance.choose(24);
        let some = model.0.intents.values().rev().nth(back);
        let change = change(chance);
        let new = self.new_intent(chance, digest, model);
        let key = (self.epoch, name);
        let is_of_its_epoch = chance.choose(2) == 0;
        let epoch_of = |it: &Intent| {
            if is_of_its_epoch {
                epoch_of(it)
            } else {
                self.epoch
            }
        };
        match (kind, some) {
            (0, _) => {
                if patience == Duration::ZERO {
                    self.epoch = epoch;
                }
                Command::Agree(epoch, patience)
            }
            (1, _) => Command::Claim(key, digest, owner),
            (2, _) => Command::Release(key, owner),
            (3, Some(it)) => Command::Link((epoch_of(it), name), digest, it.id),
            (4, Some(it)) => Command::Answer((epoch_of(it), name), digest, it.id),
            (5..=11, Some(it)) => Command::Apply(it.id, change),
            _ => Command::Intend(Box::new(new)),
        }
    }

    fn new_intent(
        &self,
        chance: &mut Chance,
        digest: [u8; 32],
        model: &Model,
    ) -> NewIntent<'static> {
        let nonce = 1 + u64::from(chance.choose(8));
        let variant = chance.pick(&[0, 0, 1]);
        let operation = chance.pick(&[DRIP, DRIP, DRIP, "register"]);
        let identity = chance.pick(&[Some(felt(0x11)), Some(felt(0x12)), None, None]);
        let drips = chance.pick(&[None, None, None, Some(4), Some(0)]);
        let replaces = chance.pick(&[None, Some(())]);
        let newest = model.0.intents.keys().next_back().copied();
        NewIntent {
            operation,
            digest,
            subject: Some(felt(chance.pick(&[0x21, 0x22, 0x23]))),
            identity: identity.filter(|_| operation == DRIP),
            request: "{}",
            epoch: chance.pick(&[self.epoch, self.epoch, self.epoch, self.epoch, EPOCHS[0]]),
            born: u64::from(chance.choose(9)),
            signer: felt(1),
            nonce,
            transaction_hash: felt(0x1000 * u64::from(digest[0]) + 0x10 * nonce + variant),
            transaction: "{}",
            idempotency_key: chance.pick(&[None, None, None, Some("k"), Some("l")]),
            replaces: replaces.and(newest),
            max_fee: chance.pick(&[0, STRK]),
            budgets: Budgets {
                drips: drips.filter(|_| operation == DRIP),
                fees: chance.pick(&[None, None, Some(3 * STRK)]),
            },
            cooldown: chance.pick(&[None, None, None, Some(DAY)]),
        }
    }
}

fn digest(chance: &mut Chance) -> [u8; 32] {
    [chance.pick(&[1, 2, 3, 4, 5, 6, 7]); 32]
}

fn epoch_of(intent: &Intent) -> &'static str {
    EPOCHS
        .into_iter()
        .find(|epoch| *epoch == intent.epoch)
        .unwrap()
}

fn change(chance: &mut Chance) -> Change<'static> {
    let fingerprint = [chance.pick(&[1, 2]); 32];
    let block = Some(Inclusion {
        number: u64::from(chance.choose(9)),
        fingerprint,
    });
    let block = chance.pick(&[None, block]);
    let fee = chance.pick(&[None, Some(STRK / 2)]);
    chance.pick(&[
        Change::SentAgain,
        Change::Accepted,
        Change::Included {
            outcome: Ok(()),
            fee,
            block,
        },
        Change::Included {
            outcome: Err(Some("why")),
            fee,
            block,
        },
        Change::Rejected("code 1"),
        Change::Displaced {
            from: None,
            why: "gone",
        },
        Change::Displaced {
            from: None,
            why: "gone",
        },
        Change::Lost("taken"),
    ])
}
