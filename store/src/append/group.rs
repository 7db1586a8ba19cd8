//! The transaction of a group: it locks the end of the journal, stores new intents, changes
//! intents, appends the entries, and commits. The decisions are in
//! [`portcullis_filters::ledger::group`].

use super::rows::{self, event};
use super::{Jobs, facts};
use crate::db::Db;
use crate::entry::Event;
use crate::error::StoreError;
use crate::journal::{self, Appended};
use crate::row::FromRow as _;
use crate::state::EntryKind;
use crate::tx::Tx;
use crate::{Intended, Intent, IntentId, clock, faucet, refusals, sql};
use portcullis_filters::ledger::group::{Changing, Decisions, Effect, Ended, NoReply, replied};
use portcullis_filters::ledger::{self, Facts, Intention, NewIntent, Rebinding, Refusal, Steps};
use tokio::time::Instant;

/// A decision that its command is answered with once the transaction has ended.
#[derive(Debug)]
pub(super) struct Decided<R> {
    reply: Result<R, StoreError>,
    effect: Effect,
}

impl<R> Decided<R> {
    fn of(reply: R, effect: Effect) -> Self {
        Self {
            reply: Ok(reply),
            effect,
        }
    }

    /// The answer after this end of the transaction.
    pub(super) fn answered(self, end: &End) -> Result<R, StoreError> {
        let error = match end {
            End::Committed => return self.reply,
            End::RolledBack(error) | End::Unknown(error) => error,
        };
        match replied(self.effect, end.ended()) {
            Ok(()) => self.reply,
            Err(NoReply::Failed) => Err(error.shared()),
            Err(NoReply::Unconfirmed) => Err(StoreError::Unconfirmed(Box::new(error.shared()))),
        }
    }
}

impl Decided<()> {
    /// A refusal that is recorded.
    pub(super) fn recorded() -> Self {
        Self::of((), Effect::Changed)
    }
}

/// How the transaction ended.
#[derive(Debug)]
pub(super) enum End {
    Committed,
    RolledBack(StoreError),
    Unknown(StoreError),
}

impl End {
    fn ended(&self) -> Ended {
        match self {
            Self::Committed => Ended::Committed,
            Self::RolledBack(_) => Ended::RolledBack,
            Self::Unknown(_) => Ended::Unknown,
        }
    }

    fn of(committed: Result<(), StoreError>) -> Self {
        match committed.map_err(StoreError::of_commit) {
            Ok(()) => Self::Committed,
            Err(StoreError::Unconfirmed(error)) => Self::Unknown(*error),
            Err(error) => Self::RolledBack(error),
        }
    }
}

/// The decisions of a group; `None` for a command that a later group decides.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) intended: Vec<Option<Decided<Intended>>>,
    pub(super) changed: Vec<Option<Decided<bool>>>,
    pub(super) end: End,
}

/// Why a transaction was rolled back before its commit.
#[derive(Debug)]
pub(super) enum Failure {
    Store(StoreError),
    /// The key of a new intent was released, and claimed for another request, since it was read.
    KeyTaken,
}

impl Failure {
    /// Whether one command may have caused it.
    pub(super) fn is_of_one(&self) -> bool {
        match self {
            Self::Store(error) => error.is_of_one(),
            Self::KeyTaken => true,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The transaction, and what it has changed so far.
pub(super) struct Group {
    tx: Tx,
    appended: Appended,
    has_changed: bool,
}

/// A new intent of a group, with its facts.
struct Candidate<'j> {
    new: NewIntent<'j>,
    facts: Facts,
    now_us: i64,
}

/// A new intent that is stored.
struct Stored<'c> {
    id: IntentId,
    of: &'c Candidate<'c>,
    bindings: Vec<Rebinding>,
}

impl Group {
    /// Begins a transaction that has locked the end of the journal.
    pub(super) async fn begin(db: &Db, deadline: Instant) -> Result<Self, StoreError> {
        let (tx, end) = journal::begin_until(db, deadline).await?;
        Ok(Self {
            tx,
            appended: Appended::after(end),
            has_changed: false,
        })
    }

    /// Decides about these commands, writes, and commits.
    pub(super) async fn run(mut self, jobs: &Jobs) -> Result<Done, Failure> {
        let intended = self.intend(jobs).await?;
        let changed = self.change(jobs).await?;
        self.refuse(jobs).await?;
        Ok(Done {
            intended,
            changed,
            end: self.end().await?,
        })
    }

    /// Stores the new intents that their facts permit.
    async fn intend(&mut self, jobs: &Jobs) -> Result<Vec<Option<Decided<Intended>>>, Failure> {
        let candidates = self.candidates(jobs).await?;
        let mut decisions = Decisions::default();
        let mut decided = Vec::with_capacity(candidates.len());
        let mut stored = Vec::new();
        let mut links = Vec::new();
        for of in &candidates {
            let decision = match decisions.intention(&of.new, &of.facts, of.now_us) {
                None => None,
                Some(Intention::Refuse { reply, link: None }) => {
                    Some(Decided::of(reply, Effect::Nothing))
                }
                Some(Intention::Refuse {
                    reply,
                    link: Some(id),
                }) => {
                    links.extend(rows::link(&of.new, id, of.now_us));
                    Some(Decided::of(reply, Effect::Changed))
                }
                Some(Intention::Insert(bindings)) => {
                    let id = IntentId(self.appended.next());
                    for event in rows::intended(&of.new, id) {
                        self.appended.push(event, of.now_us);
                    }
                    links.extend(rows::link(&of.new, id, of.now_us));
                    stored.push(Stored { id, of, bindings });
                    Some(Decided::of(Intended::New(id), Effect::Stored))
                }
            };
            decided.push(decision);
        }
        self.store(&stored, links).await?;
        Ok(decided)
    }

    /// The new intents with their facts. Intents that were dated ahead are dated anew first.
    async fn candidates<'j>(&mut self, jobs: &'j Jobs) -> Result<Vec<Candidate<'j>>, StoreError> {
        let news: Vec<(NewIntent<'j>, i64)> = jobs
            .intents
            .iter()
            .map(|job| (job.command.borrowed(), job.now_us))
            .collect();
        let mut known = facts::read(&mut self.tx, &news).await?;
        for at in 0..news.len() {
            let (Some((_, now_us)), Some(facts)) = (news.get(at), known.get(at)) else {
                break;
            };
            if let Some(after_us) = ledger::ahead_after_us(facts.newest_us, *now_us) {
                clock::date_anew(&mut self.tx, after_us, *now_us).await?;
                self.has_changed = true;
                known = facts::read(&mut self.tx, &news).await?;
            }
        }
        let candidates = news.into_iter().zip(known);
        Ok(candidates
            .map(|((new, now_us), facts)| {
                debug_assert!(facts.are_of(&new), "they are read for this intent");
                Candidate { new, facts, now_us }
            })
            .collect())
    }

    /// Writes new intents, their bindings, and the links of keys.
    async fn store(
        &mut self,
        stored: &[Stored<'_>],
        links: Vec<rows::Args<'_>>,
    ) -> Result<(), Failure> {
        let mut intents = Vec::with_capacity(stored.len());
        for Stored { id, of, .. } in stored {
            intents.push(rows::intent(&of.new, *id, of.now_us)?);
        }
        let added = self.tx.run_each(sql::INTENT_ADD, &intents).await;
        added.map_err(StoreError::of_decided)?;
        for Stored { of, bindings, .. } in stored {
            faucet::rebind(&mut self.tx, of.new.epoch, bindings, of.now_us).await?;
        }
        let linked = self.tx.run_each(sql::KEY_LINK, &links).await?;
        if linked != links.len() as u64 {
            return Err(Failure::KeyTaken);
        }
        self.has_changed |= linked > 0;
        Ok(())
    }

    /// Changes the intents whose states permit it.
    async fn change(&mut self, jobs: &Jobs) -> Result<Vec<Option<Decided<bool>>>, StoreError> {
        let ids = jobs.changes.iter().map(|job| vec![job.command.id.0.into()]);
        let ids: Vec<rows::Args<'_>> = ids.collect();
        let found = self.tx.rows_each(sql::CHANGE_INTENTS, &ids).await?;
        let mut decisions = Decisions::default();
        let mut decided = Vec::with_capacity(found.len());
        let mut all = Vec::new();
        for (job, rows) in jobs.changes.iter().zip(&found) {
            let id = job.command.id;
            let intents = intents(rows)?;
            let Some(intent) = intents.iter().find(|intent| intent.id == id) else {
                decided.push(Some(Decided {
                    reply: Err(StoreError::UnknownIntent(id)),
                    effect: Effect::Nothing,
                }));
                continue;
            };
            let change = job.command.change.borrowed();
            decided.push(match decisions.change(id, &change, &intents, job.now_us) {
                Changing::Postponed => None,
                Changing::Refused => Some(Decided::of(false, Effect::Nothing)),
                Changing::Steps(steps) => {
                    debug_assert!(
                        steps.steps.iter().any(|step| step.intent.id == id),
                        "a change that is allowed changes its intent"
                    );
                    all.push((steps, intent.clone(), job.now_us));
                    Some(Decided::of(true, Effect::Changed))
                }
            });
        }
        self.write(&all).await?;
        Ok(decided)
    }

    /// Writes changed intents, and the bindings that follow from them. Slots differ, so only the
    /// order within each matters.
    async fn write(&mut self, all: &[(Steps, Intent, i64)]) -> Result<(), StoreError> {
        let mut moves = Vec::new();
        let mut withdrawn = Vec::new();
        for (steps, _, now_us) in all {
            if let [step] = steps.steps.as_slice() {
                moves.push(rows::moved(step)?);
            } else {
                for step in &steps.steps {
                    let moved = self.tx.run(sql::INTENT_MOVE, &rows::moved(step)?).await;
                    moved.map_err(StoreError::of_decided)?;
                }
            }
            for step in &steps.steps {
                if step.has_entry() {
                    self.appended.push(event(step), *now_us);
                }
                if step.withdraws {
                    withdrawn.push(vec![step.intent.id.0.into()]);
                }
            }
            self.has_changed = true;
        }
        let moved = self.tx.run_each(sql::INTENT_MOVE, &moves).await;
        moved.map_err(StoreError::of_decided)?;
        self.tx.run_each(sql::KEY_WITHDRAW, &withdrawn).await?;
        for (steps, intent, now_us) in all {
            let of = steps.of_interest();
            if !of.is_empty() {
                let tx = &mut self.tx;
                let nonce = rows::stored("nonce", intent.nonce)?;
                let bound = faucet::bound(tx, &intent.epoch, &of, intent.signer, nonce).await?;
                faucet::rebind(tx, &intent.epoch, &steps.rebind(&bound), *now_us).await?;
            }
        }
        Ok(())
    }

    /// Records refusals.
    async fn refuse(&mut self, jobs: &Jobs) -> Result<(), StoreError> {
        let of_jobs = jobs.refusals.iter().map(|job| (&job.command, job.now_us));
        let refused: Vec<(&Refusal, i64)> = of_jobs.collect();
        self.has_changed |= !refused.is_empty();
        for (refusal, at_us) in refusals::count(&mut self.tx, &refused).await? {
            let detail = journal::object(&[
                ("reason", Some(&refusal.reason)),
                ("request_id", Some(&refusal.request_id)),
            ]);
            let event = Event {
                kind: EntryKind::Refused,
                intent: None,
                operation: &refusal.operation,
                detail,
            };
            self.appended.push(event, at_us);
        }
        Ok(())
    }

    /// Appends the entries and commits, if anything changed.
    async fn end(mut self) -> Result<End, StoreError> {
        if !self.appended.is_empty() {
            self.appended.write(&mut self.tx).await?;
        } else if !self.has_changed {
            return Ok(End::Committed);
        }
        Ok(End::of(self.tx.commit().await))
    }
}

pub(super) fn intents(rows: &[crate::row::Row]) -> Result<Vec<Intent>, StoreError> {
    let mut intents = rows
        .iter()
        .map(Intent::read)
        .collect::<Result<Vec<_>, _>>()?;
    // as the statement sorts them for one command
    intents.sort_by_key(|intent| intent.id);
    Ok(intents)
}
