//! Mistakes in the driver and the world. Those in the flows and the ledger are in `mistakes.txt`.

/// A mistake that a test plants, to see that the world finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A block that a URL does not show is taken for another one, and its transaction for lost.
    AbsentIsLost,
    /// A transaction in doubt is lost.
    DisplacedIsLost,
    /// A lost transaction never comes back.
    LostIsFinal,
    /// A key is not linked to the intent that its request joined.
    UnlinkedJoiner,
    /// "Already so" is stored.
    StoredAlready,
    /// The journal is read as it was some seconds ago.
    StaleReads,
    /// A key is linked to whatever body.
    LinkAnyBody,
    /// A relay counts nonces by itself.
    LocalCounter,
    /// A nonce is used up when it is signed with.
    BurnedNonce,
    /// A sent transaction is never sent again.
    SentIsBroadcast,
    /// It is sent before it is stored.
    SendFirst,
    /// A commit without a confirmation is taken for a failed one.
    UnknownIsFailed,
    /// An add without an answer is taken for one that was not sent.
    CutIsUnsent,
    /// A lost lock and a used slot are not noticed.
    NoFence,
    /// A repeat that is refused is taken for rejected.
    RefusedRepeatIsRejected,
    /// That it is sent again is not recorded, and its first sender rejects it.
    SilentRepeat,
    /// The cooldown is read before the lock only.
    CooldownBeforeLock,
    /// Each relay uses its own clock.
    WallClock,
    /// Who waited in vain for a lock gets it later.
    LockLeaked,
    /// Bindings are never released.
    BindingKept,
    /// All requests join one write.
    JoinedByNothing,
    /// The cursor of events moves before they are kept, in a commit of its own.
    CursorApart,
    /// Every event is due, also after one of its write that waits.
    OutOfOrder,
}

impl Bug {
    pub(super) const PLANTED: &[Self] = &[
        Self::AbsentIsLost,
        Self::DisplacedIsLost,
        Self::LostIsFinal,
        Self::UnlinkedJoiner,
        Self::StoredAlready,
        Self::StaleReads,
        Self::LinkAnyBody,
        Self::LocalCounter,
        Self::BurnedNonce,
        Self::SentIsBroadcast,
        Self::SendFirst,
        Self::UnknownIsFailed,
        Self::CutIsUnsent,
        Self::NoFence,
        Self::RefusedRepeatIsRejected,
        Self::SilentRepeat,
        Self::CooldownBeforeLock,
        Self::WallClock,
        Self::LockLeaked,
        Self::BindingKept,
        Self::JoinedByNothing,
        Self::CursorApart,
        Self::OutOfOrder,
    ];

    /// The planted bug of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let mut all = Self::PLANTED.iter().copied();
        all.find(|bug| format!("{bug:?}") == name)
    }
}
