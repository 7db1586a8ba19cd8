//! The model: the tables in maps, with the commands of a history and the rows to compare.

use crate::tables::{DRIP, Named, RequestKey, Tables};
use portcullis_filters::ledger::{self, Key, Pair};
use portcullis_store::{Change, Claim, ClaimToken, Intended, Intent, IntentId, NewIntent};
use std::collections::BTreeSet;
use std::time::Duration;

/// A command of the store.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Reports an epoch.
    Agree(&'static str, Duration),
    Claim(KeyOf, [u8; 32], ClaimToken),
    Release(KeyOf, ClaimToken),
    Link(KeyOf, [u8; 32], IntentId),
    Answer(KeyOf, [u8; 32], IntentId),
    Apply(IntentId, Change<'static>),
    Intend(Box<NewIntent<'static>>),
}

/// An epoch and a key in it.
pub(super) type KeyOf = (&'static str, &'static str);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Agreed(String),
    Claimed(Claim),
    Done(bool),
    Intended(Intended),
}

/// The tables, and what is done to them.
#[derive(Debug, Clone, Default)]
pub(super) struct Model(pub(super) Tables);

impl Model {
    pub(super) fn perform(&mut self, command: &Command, now_us: i64) -> Reply {
        let tables = &mut self.0;
        match command {
            Command::Agree(epoch, patience) => {
                let patience_us = patience.as_micros().try_into().unwrap();
                // by the clock of the database, which does not advance by an hour meanwhile
                Reply::Agreed(tables.agree(epoch, 0, patience_us))
            }
            Command::Claim(key, digest, token) => {
                Reply::Claimed(tables.claim(&used(*key, *digest), *token))
            }
            Command::Release(key, token) => Reply::Done(tables.release(&named(*key), *token)),
            Command::Link(key, digest, id) => Reply::Done(tables.link(&used(*key, *digest), *id)),
            Command::Answer(key, digest, id) => {
                Reply::Done(tables.answer(&used(*key, *digest), *id, 200, "x"))
            }
            Command::Apply(id, change) => {
                let steps = ledger::change(*id, change, &tables.related(*id), now_us);
                if let Some(steps) = &steps {
                    tables.write(*id, steps);
                }
                Reply::Done(steps.is_some())
            }
            Command::Intend(new) => {
                let _dated = tables.date_anew(now_us);
                let facts = tables.facts(new, now_us);
                let intention = ledger::intention(new, &facts, now_us);
                Reply::Intended(tables.store(new, intention, now_us))
            }
        }
    }

    /// Rows that a unique index forbids: these are alarms, and no decision leads to them.
    pub(super) fn contradiction(&self) -> Option<String> {
        let mut taken = BTreeSet::new();
        let mut is_taken = |row: String| (!taken.insert(row.clone())).then_some(row);
        for it in self.0.intents.values() {
            let Intent {
                epoch,
                signer,
                nonce,
                state,
                transaction_hash,
                ..
            } = it;
            let rows = [
                state
                    .holds()
                    .then(|| format!("transaction {epoch} {transaction_hash}")),
                state
                    .occupies()
                    .then(|| format!("nonce {epoch} {signer} {nonce}")),
                state
                    .is_unresolved()
                    .then(|| format!("open request {epoch} {}", hex(&it.digest))),
            ];
            if let Some(twice) = rows.into_iter().flatten().find_map(&mut is_taken) {
                return Some(twice);
            }
        }
        self.0.bindings.iter().find_map(|(epoch, pair)| {
            let identity = is_taken(format!("identity {epoch} {}", pair.identity));
            identity.or(is_taken(format!("recipient {epoch} {}", pair.recipient)))
        })
    }

    /// The epoch, keys and bindings, as [`ROWS`] finds them, sorted.
    pub(super) fn rows(&self) -> Vec<String> {
        let key = |((epoch, name), key): (&Named, &Key)| {
            let token = key.token.map(|token| hex(&token.0)).unwrap_or_default();
            let intent = key.intent.map(|id| id.to_string()).unwrap_or_default();
            let body = key.answer.as_ref().map_or("", |(_, body)| body);
            format!(
                "{epoch} {name} {} {token} {intent} {body}",
                hex(&key.digest)
            )
        };
        let binding =
            |(epoch, it): &(String, Pair)| format!("{epoch} {} {}", it.identity, it.recipient);
        let bindings = self.0.bindings.iter().map(binding);
        let epoch = self
            .0
            .agreement
            .iter()
            .map(|agreement| format!("epoch {}", agreement.epoch));
        let mut rows: Vec<_> = self
            .0
            .keys
            .iter()
            .map(key)
            .chain(bindings)
            .chain(epoch)
            .collect();
        rows.sort();
        rows
    }
}

fn named((epoch, key): KeyOf) -> Named {
    (epoch.to_owned(), key.to_owned())
}

fn used(key: KeyOf, digest: [u8; 32]) -> RequestKey {
    RequestKey {
        named: named(key),
        operation: DRIP.to_owned(),
        digest,
    }
}

/// The epoch in force, all keys and all bindings, as the model shows them.
pub(super) const ROWS: &str = "SELECT epoch || ' ' || key || ' ' || digest || ' ' \
    || coalesce(claim_token, '') || ' ' || coalesce(CAST(intent_id AS TEXT), '') || ' ' \
    || coalesce(body, '') FROM idempotency \
    UNION ALL SELECT epoch || ' ' || identity || ' ' || recipient FROM faucet_binding \
    UNION ALL SELECT 'epoch ' || epoch FROM chain_epoch";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
