//! The commands of each relay that wait for the end of the journal, which share one transaction: it
//! may fail because of one of them, and its commit may have no answer.

use super::Bug;
use super::io::{LONGEST, SimIo, unconfirmed};
use super::machine::{HasAgenda as _, Process, Slot, fill};
use super::world::{Fault, Lapse, World};
use portcullis_filters::ledger::group::{
    Changing, Decisions, Effect, Ended, MAX_COMMANDS, NoReply, replied,
};
use portcullis_filters::ledger::{Intended, IntentId, OwnedChange, OwnedIntent};
use portcullis_filters::txm::io::{JournalError, Stored};
use std::time::Duration;

/// A command and what it is answered with.
#[derive(Clone)]
enum Command {
    Intend(Box<OwnedIntent>, Slot<Stored<Intended>>),
    Change(IntentId, OwnedChange, Slot<Stored<bool>>),
}

#[derive(Clone)]
struct Waiting {
    command: Command,
    now_us: i64,
    since: Duration,
}

/// The reply that a command gets if the transaction ends well.
enum Reply {
    Intended(Intended),
    Changed(bool),
    /// No intent has this id.
    Unknown,
}

/// The commands of a relay that wait.
#[derive(Default)]
pub(super) struct Group {
    waiting: Vec<Waiting>,
    lapse: Option<Lapse>,
    is_due: bool,
}

impl SimIo {
    /// Stores a new intent, together with the commands that wait.
    pub(super) async fn intend_with_others(
        &self,
        new: OwnedIntent,
        now_us: i64,
    ) -> Stored<Intended> {
        let slot = Slot::new();
        self.let_wait(Command::Intend(Box::new(new), slot.clone()), now_us);
        let stored = slot.wait().await;
        self.world.lock().record_query(self.relay, &stored);
        stored
    }

    /// Changes an intent, together with the commands that wait.
    pub(super) async fn change_with_others(
        &self,
        id: IntentId,
        change: OwnedChange,
        now_us: i64,
    ) -> Stored<bool> {
        let slot = Slot::new();
        self.let_wait(Command::Change(id, change, slot.clone()), now_us);
        let stored = slot.wait().await;
        self.world.lock().record_query(self.relay, &stored);
        stored
    }

    fn let_wait(&self, command: Command, now_us: i64) {
        let mut world = self.world.lock();
        let since = world.now();
        let lapse = world.lapse.take();
        let group = &mut world.relays[self.relay].group;
        group.lapse = group.lapse.or(lapse);
        group.waiting.push(Waiting {
            command,
            now_us,
            since,
        });
        world.let_group_begin(self.relay);
    }
}

impl World {
    /// Lets the next group of a relay begin, once the end of the journal is free.
    fn let_group_begin(&mut self, relay: Process) {
        let group = &mut self.relays[relay].group;
        if group.waiting.is_empty() || std::mem::replace(&mut group.is_due, true) {
            return;
        }
        let is_held = self.fires(Fault::JournalHeld, 4);
        let longest = if is_held {
            self.chance.pick(&[200, 1_500])
        } else {
            4
        };
        let took = self.millis(0, longest);
        self.agenda()
            .after(took, move |world: &mut Self| world.run_group(relay));
    }

    /// Runs the transaction of a group.
    fn run_group(&mut self, relay: Process) {
        let group = &mut self.relays[relay].group;
        group.is_due = false;
        let lapse = group.lapse.take();
        let number = group.waiting.len().min(MAX_COMMANDS);
        let commands: Vec<_> = group.waiting.drain(..number).collect();
        let is_shared = commands.len() > 1;
        if is_shared {
            self.count(Fault::Grouped);
        }
        let is_old = commands.iter().any(|it| self.now() > it.since + LONGEST);
        let is_full = !self.is_healed && self.now() < self.full_until;
        let fails = self.fires(Fault::StoreFails, 150) || is_old || is_full;
        let is_unknown =
            self.fires(Fault::CommitUnknown, if is_shared { 8 } else { 50 }) || lapse.is_some();
        let crash = self.fires(Fault::Crash, 1_000);
        let one_fails = is_shared && self.fires(Fault::OneFails, 15);
        if fails {
            for it in commands {
                self.answer_failed(&it.command, JournalError::Failed);
            }
        } else if is_unknown {
            let is_done = match lapse {
                Some(lapse) => lapse == Lapse::Done,
                None => self.chance.choose(2) == 0,
            };
            self.lose_answers(relay, commands, is_done);
        } else if one_fails {
            let failing = self.chance.choose(commands.len() as u32) as usize;
            for (at, it) in commands.into_iter().enumerate() {
                if at == failing {
                    self.answer_failed(&it.command, JournalError::Failed);
                } else {
                    self.carry_out(relay, vec![it], Ended::Committed);
                }
            }
        } else {
            self.carry_out(relay, commands, Ended::Committed);
        }
        self.raise_alarm();
        if crash {
            self.crash(relay);
        }
        self.let_group_begin(relay);
    }

    /// Runs a transaction whose commit has no answer.
    fn lose_answers(&mut self, relay: Process, commands: Vec<Waiting>, is_done: bool) {
        if commands.len() > 1 {
            self.count(Fault::GroupUnknown);
        }
        if is_done {
            return self.carry_out(relay, commands, Ended::Unknown);
        }
        for it in commands {
            match it.command {
                Command::Intend(_, slot) => {
                    self.answer(&slot, Intended::OtherChain, Effect::Stored, Ended::Unknown);
                }
                Command::Change(_, _, slot) => {
                    self.answer(&slot, false, Effect::Changed, Ended::Unknown);
                }
            }
        }
    }

    fn answer_failed(&mut self, command: &Command, error: JournalError) {
        match command {
            Command::Intend(_, slot) => fill(self.agenda(), slot, Err(error)),
            Command::Change(_, _, slot) => fill(self.agenda(), slot, Err(error)),
        }
    }

    /// Decides about commands, and answers each after this end of the transaction.
    fn carry_out(&mut self, relay: Process, commands: Vec<Waiting>, ended: Ended) {
        let (intends, changes): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .partition(|it| matches!(it.command, Command::Intend(..)));
        let mut decided = self.intend_all(relay, &intends);
        decided.extend(self.change_all(relay, &changes));
        let mut postponed = Vec::new();
        for (it, decided) in intends.into_iter().chain(changes).zip(decided) {
            match (&it.command, decided) {
                (_, None) => postponed.push(it),
                (Command::Intend(_, slot), Some((Reply::Intended(reply), effect))) => {
                    self.answer(slot, reply, effect, ended);
                }
                (Command::Change(_, _, slot), Some((Reply::Changed(reply), effect))) => {
                    self.answer(slot, reply, effect, ended);
                }
                (command, Some(_)) => self.answer_failed(command, JournalError::Failed),
            }
        }
        if !postponed.is_empty() {
            self.count(Fault::Postponed);
        }
        self.relays[relay].group.waiting.splice(..0, postponed);
    }

    fn intend_all(&mut self, relay: Process, all: &[Waiting]) -> Vec<Option<(Reply, Effect)>> {
        for it in all {
            self.journal.date_anew(it.now_us);
        }
        let facts: Vec<_> = all
            .iter()
            .map(|it| match &it.command {
                Command::Intend(new, _) => Some(self.journal.facts(&new.borrowed(), it.now_us)),
                Command::Change(..) => None,
            })
            .collect();
        let mut decisions = Decisions::default();
        let mut decided = Vec::new();
        for (it, facts) in all.iter().zip(&facts) {
            let (Command::Intend(new, _), Some(facts)) = (&it.command, facts) else {
                continue;
            };
            let new = new.borrowed();
            let Some(intention) = decisions.intention(&new, facts, it.now_us) else {
                decided.push(None);
                continue;
            };
            if self.fires(Fault::CutOff, 6) {
                self.cut_off(relay);
            }
            let reply = self.intend(relay, &new, intention, it.now_us);
            let effect = match reply {
                Intended::New(_) => Effect::Stored,
                _ => Effect::Changed,
            };
            decided.push(Some((Reply::Intended(reply), effect)));
        }
        decided
    }

    fn change_all(&mut self, relay: Process, all: &[Waiting]) -> Vec<Option<(Reply, Effect)>> {
        let related: Vec<_> = all
            .iter()
            .map(|it| match &it.command {
                Command::Change(id, ..) if self.journal.tables.intents.contains_key(id) => {
                    self.journal.tables.related(*id)
                }
                _ => Vec::new(),
            })
            .collect();
        let mut decisions = Decisions::default();
        let mut decided = Vec::new();
        for (it, related) in all.iter().zip(&related) {
            let Command::Change(id, change, _) = &it.command else {
                continue;
            };
            if related.is_empty() {
                decided.push(Some((Reply::Unknown, Effect::Nothing)));
                continue;
            }
            let id = *id;
            let change = change.borrowed();
            let is_applied = match self.journal.planted(id, &change) {
                Err(reply) => self.apply(relay, id, &change, Err(reply)),
                Ok(planted) => match decisions.change(id, &planted, related, it.now_us) {
                    Changing::Postponed => {
                        decided.push(None);
                        continue;
                    }
                    Changing::Refused => self.apply(relay, id, &change, Err(false)),
                    Changing::Steps(steps) => self.apply(relay, id, &change, Ok(&steps)),
                },
            };
            decided.push(Some((Reply::Changed(is_applied), Effect::Changed)));
        }
        decided
    }

    /// Answers a command after the end of its transaction.
    fn answer<T>(&mut self, slot: &Slot<Stored<T>>, reply: T, effect: Effect, ended: Ended) {
        let answer = match replied(effect, ended) {
            Ok(()) => Ok(reply),
            Err(_) if self.bug == Bug::UnknownIsFailed => Err(JournalError::Failed),
            Err(NoReply::Unconfirmed) => Err(JournalError::Unconfirmed),
            Err(NoReply::Failed) => Err(unconfirmed(self.chance.choose(2))),
        };
        fill(self.agenda(), slot, answer);
    }
}
