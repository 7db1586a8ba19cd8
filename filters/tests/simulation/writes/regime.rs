//! What kind of world a seed draws: how deep and how often the chain rolls back. In some regimes
//! money may be paid twice, whatever a relay does; there, keys and progress are judged all the same.

use super::world::{CONFIRMATIONS, Fault};
use crate::toolkit::Chance;

/// The regime of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Regime {
    /// Rollbacks reach below settled blocks.
    pub(super) is_deep: bool,
    /// About every tenth block is followed by a rollback.
    pub(super) is_often: bool,
    /// V2 verification is not permanent when the chain starts.
    pub(super) is_v2_later: bool,
    /// The store loses its newest commits; nothing but progress is judged.
    pub(super) loses_tail: bool,
    /// The faucet may pay few drips a day.
    pub(super) has_few_drips: bool,
    /// A day's fees are those of few writes.
    pub(super) has_few_fees: bool,
}

/// How many of the actions that clients ended were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) written: u64,
    pub(super) ended: u64,
}

impl Share {
    /// In percent.
    pub(super) fn percent(self) -> u64 {
        100 * self.written / self.ended.max(1)
    }
}

impl Regime {
    pub(super) fn drawn(chance: &mut Chance, enabled: &[Fault]) -> Self {
        Self {
            is_deep: chance.choose(8) == 7 && enabled.contains(&Fault::DeepRollback),
            is_often: chance.choose(3) == 2 && enabled.contains(&Fault::OftenRollback),
            is_v2_later: chance.choose(4) == 3 && enabled.contains(&Fault::V2Later),
            loses_tail: chance.choose(12) == 11 && enabled.contains(&Fault::LostTail),
            has_few_drips: chance.choose(4) == 3 && enabled.contains(&Fault::FewDrips),
            has_few_fees: chance.choose(4) == 3 && enabled.contains(&Fault::FewFees),
        }
    }

    /// Leaves what these faults permit.
    pub(super) fn restrict(&mut self, enabled: &[Fault]) {
        self.is_deep &= enabled.contains(&Fault::DeepRollback);
        self.is_often &= enabled.contains(&Fault::OftenRollback);
        self.is_v2_later &= enabled.contains(&Fault::V2Later);
        self.loses_tail &= enabled.contains(&Fault::LostTail);
        self.has_few_drips &= enabled.contains(&Fault::FewDrips);
        self.has_few_fees &= enabled.contains(&Fault::FewFees);
    }

    /// Its names: a world may be several.
    pub(super) fn names(self) -> Vec<&'static str> {
        let named = [
            (self.is_deep, "deep rollbacks"),
            (self.is_often, "frequent rollbacks"),
            (self.is_v2_later, "V2 later"),
            (self.loses_tail, "commits are lost"),
            (self.has_few_drips, "few drips"),
            (self.has_few_fees, "few fees"),
        ];
        let mut names: Vec<_> = named.iter().filter(|it| it.0).map(|it| it.1).collect();
        if names.is_empty() {
            names.push("plain");
        }
        names
    }

    /// Whether no transaction of a settled block is ever taken back.
    pub(super) fn judges_money(self) -> bool {
        !self.is_deep && !self.loses_tail
    }

    /// From this depth on, a block is final.
    pub(super) fn final_depth(self) -> usize {
        if self.is_deep {
            usize::MAX
        } else {
            CONFIRMATIONS
        }
    }

    /// The most blocks of a rollback.
    pub(super) fn deepest(self) -> u32 {
        if self.is_deep {
            4 * CONFIRMATIONS as u32
        } else {
            CONFIRMATIONS as u32
        }
    }

    /// The average number of blocks between two rollbacks.
    pub(super) fn rollback_one_in(self) -> u32 {
        if self.is_often { 10 } else { 40 }
    }
}
