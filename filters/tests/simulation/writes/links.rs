//! Which intent each key names, and which blocks the relays may know.

use super::world::World;
use portcullis_filters::ledger::{Intent, IntentId, IntentState};
use std::collections::BTreeMap;

/// An epoch and a key in it.
type Named = (String, String);

/// The intents that the keys named last.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<Named, IntentId>);

impl Links {
    /// A key is no longer stored: used again, it is a new one.
    pub(super) fn forget(&mut self, key: &str) {
        self.0.retain(|(_, named), _| named != key);
    }
}

impl World {
    /// A key names an intent of its epoch, and no other one while that holds.
    pub(super) fn judge_links(&mut self) {
        let keys = &self.journal.tables.keys;
        let links: BTreeMap<Named, IntentId> = keys
            .iter()
            .filter_map(|(named, key)| Some((named.clone(), key.intent?)))
            .collect();
        let before = std::mem::replace(&mut self.oracle.links, Links(links));
        let judged = self.judge_changed(&before);
        self.oracle.report(judged);
    }

    fn judge_changed(&self, before: &Links) -> Result<(), String> {
        let intents = &self.journal.tables.intents;
        for (named, id) in &self.oracle.links.0 {
            let last = before.0.get(named);
            if last == Some(id) {
                continue;
            }
            let Some(next) = intents.get(id) else {
                continue;
            };
            if next.epoch != named.0 {
                let key = &named.1;
                return Err(format!("keys: {key} names intent {id}, of another epoch"));
            }
            let former = last.and_then(|last| intents.get(last));
            if let Some(former) = former.filter(|former| is_in_force(former, next)) {
                let key = &named.1;
                return Err(format!(
                    "keys: {key} names intent {id} while intent {} is its own",
                    former.id
                ));
            }
        }
        Ok(())
    }

    /// Notes how high the chains are.
    pub(super) fn note_heads(&mut self) {
        for chain in [&self.chain, &self.other] {
            let epoch = format!("g{}", chain.genesis);
            let head = chain.view().head().number;
            let highest = self.oracle.highest.entry(epoch).or_default();
            *highest = head.max(*highest);
        }
    }
}

/// Whether a key's intent forbids it to name another one: it holds, and is not replaced by it.
fn is_in_force(former: &Intent, next: &Intent) -> bool {
    let is_replaced = former.state == IntentState::Displaced
        && former.id < next.id
        && (former.digest, former.slot()) == (next.digest, next.slot());
    former.state.holds() && !is_replaced
}
