//! The rules by the numbers that they have where they are decided, and how often each was put to the
//! test. The others have names.

use super::world::World;
use portcullis_filters::ledger::IntentState;

macro_rules! cases {
    ($($rule:literal, $name:ident: $case:literal;)*) => {
        /// A case of a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Case { $($name),* }

        impl Case {
            pub(super) const ALL: &[Self] = &[$(Self::$name),*];

            /// The rule, and what happened.
            pub(super) fn text(self) -> &'static str {
                match self { $(Self::$name => concat!($rule, ": ", $case)),* }
            }
        }
    };
}

cases! {
    "rule 1", Included: "a block has it";
    "rule 1", BackFromDoubt: "a block has what was in doubt";
    "rule 1", BackFromLost: "a block has what was lost";
    "rule 2", OtherBlock: "another block is in the place of its own";
    "rule 2", HeadsBelow: "every head is below its block";
    "rule 3", LostToOurs: "another of ours has its nonce for good";
    "rule 3", LostToStranger: "a stranger's has its nonce for good";
    "rule 4", NeverSent: "it is rejected, and was never sent";
    "rule 4", RefusedWhenSent: "the node refuses what it was sent";
    "rule 4", RefusedAndIncluded: "the node refuses what the chain has";
    "rule 5", SentAgain: "what is in doubt is sent again";
    "rule 5", ReplacedByOwn: "a request is signed anew with the nonce of one in doubt";
    "rule 5", ReplacedByOther: "another request takes the nonce of one in doubt";
    "rule 6", DoubtedWitness: "what was lost is in doubt with its witness";
    "rule 7", StartsOver: "an intent of a former epoch is out of force";
    "rule 7", InForce: "another epoch comes into force";
    "rule 8", ResentOpen: "an open one is sent again";
    "rule 8", GivenUp: "a nonce is given up";
    "rule 8", StartedBesideOpen: "a start writes beside open transactions of users";
    "rule 9", RevertedSucceeds: "what reverted succeeds after a rollback";
    "rule 9", PaidTwice: "what was over is paid in addition to another drip";
    "keys", AnsweredAgain: "a key has its answer again";
    "keys", OtherBody: "a key is used with another body";
    "keys", SecondKey: "a second key joins a write";
    "keys", FormerEpoch: "a key of a former epoch is used again";
    "events", EventTaken: "the receiver takes an event";
    "events", EventTakenAgain: "the receiver takes an event again";
}

/// Transitions that a run of 256 seeds need not take, and why.
pub(super) fn need_not_be_taken(from: IntentState, to: IntentState) -> bool {
    use IntentState::{Accepted, Intended, Lost, Reverted, Succeeded};
    match (from, to) {
        // only versions before this one store an intent apart from its sending
        (Intended, _) => true,
        // a rollback that meets what reverts, or what another one replaced: longer runs take these
        (Accepted, Lost) | (Succeeded | Lost | Reverted, Reverted) => true,
        _ => false,
    }
}

impl World {
    /// Counts that a case came up.
    pub(super) fn met(&mut self, case: Case) {
        *self.oracle.cases.entry(case).or_default() += 1;
    }
}
