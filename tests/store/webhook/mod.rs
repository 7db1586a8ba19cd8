//! Proofs of age under every order of commands, with two processes at one database: random
//! histories on a model, on SQLite and on PostgreSQL. After each command the replies and the
//! contents are those of the model, in one of the orders in which the commands may have been
//! committed; a commit that was not confirmed is in it or not. The oracle judges what the model
//! did.
//!
//! Reading order: `history` (what is drawn), `model`, `oracle`.

mod history;
mod model;
mod oracle;

use crate::age::clock;
use crate::pair::Pair;
use crate::toolkit::{Chance, Outcome, explore, explore_within};
use crate::wire::{Cut, Moment};
use crate::world::{Kind, World, seeds, with_world};
use history::{History, Mode, Step};
use model::{Bug, Command, Model, ROWS, Reply};
use oracle::Oracle;
use portcullis_store::{Forgotten, PruneBefore, Store, StoreError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tokio::runtime::Runtime;

/// Of the model alone.
const SEEDS: u64 = 256;
const STEPS: u32 = 200;
/// Of a database.
const DATABASE_SEEDS: u64 = 6;
const DATABASE_STEPS: u32 = 120;
/// Histories to shrink a failure on a database.
const SHRINKING: usize = 200;

/// The orders in which two commands may be committed, or one alone, or none.
const ORDERS: [&[usize]; 5] = [&[0, 1], &[1, 0], &[0], &[1], &[]];

/// How often each end of a step and each reply was seen.
type Seen = BTreeMap<String, u32>;

/// The model and its judge.
#[derive(Default)]
struct Judged {
    model: Model,
    oracle: Oracle,
}

impl Judged {
    /// Applies commands in this order.
    fn apply(&mut self, commands: &[Command], order: &[usize]) -> Result<(), String> {
        for at in order {
            let reply = self.model.apply(&commands[*at]);
            self.oracle.judge(&commands[*at], &reply)?;
        }
        self.oracle.compare(&self.model)
    }
}

fn simulate(chance: &mut Chance, bug: Option<Bug>) -> Outcome {
    let mut history = History::new(chance);
    let mut judged = Judged::default();
    judged.model.bug = bug;
    let mut outcome = Outcome::default();
    for _ in 0..STEPS {
        let step = history.step(chance);
        let which = chance.choose(2) as usize;
        let order = match step.mode {
            Mode::Alone(_) => ORDERS[2],
            Mode::Together => ORDERS[which],
            // its commit may be done all the same
            Mode::Cut(..) => [ORDERS[2], ORDERS[4]][which],
        };
        outcome.trace.push(format!("{step:?} as {order:?}"));
        if let Err(violation) = judged.apply(&step.commands, order) {
            outcome.violation = Some(violation);
            break;
        }
    }
    outcome
}

#[test]
fn the_model_keeps_the_contract() {
    if let Err(failure) = explore(0..seeds(SEEDS), |chance| simulate(chance, None)) {
        panic!("{failure}");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    for bug in [
        Bug::RepeatDecidedAgain,
        Bug::ContentIgnored,
        Bug::OnlyAppliedStored,
        Bug::LastArrivalWins,
        Bug::UserNeverMoves,
        Bug::NewestEventWins,
        Bug::LiveSessionPruned,
        Bug::SessionNotForgotten,
        Bug::EventsNotForgotten,
        Bug::MinuteNotCounted,
    ] {
        let found = (0..SEEDS).find_map(|seed| {
            let violation = simulate(&mut Chance::of_seed(seed), Some(bug)).violation?;
            Some(format!("seed {seed}: {violation}"))
        });
        let found = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: {found}");
    }
}

struct Database {
    world: World,
    pair: Pair,
}

impl Database {
    /// The replies; `None` where it is not known whether the command was committed.
    async fn perform(&self, step: &Step) -> Result<Vec<Option<Reply>>, String> {
        let [first, second] = &self.pair.stores;
        match (step.mode, &step.commands[..]) {
            (Mode::Together, [one, two]) => {
                let (one, two) = tokio::join!(execute(first, one), execute(second, two));
                Ok(vec![confirmed(one)?, confirmed(two)?])
            }
            (Mode::Cut(at, cut), [command]) => Ok(vec![self.interrupted(at, command, cut).await?]),
            (Mode::Alone(at), [command]) => match execute(&self.pair.stores[at], command).await {
                Ok(reply) => Ok(vec![Some(reply)]),
                Err(error) => Err(error.to_string()),
            },
            (mode, commands) => Err(format!("{mode:?} is not for {commands:?}")),
        }
    }

    async fn interrupted(
        &self,
        at: usize,
        command: &Command,
        cut: Cut,
    ) -> Result<Option<Reply>, String> {
        use Command::{Forget, Open, Record};
        let is_one_transaction = matches!(command, Open { .. } | Record { .. } | Forget { .. });
        let work = execute(&self.pair.stores[at], command);
        let ended = self.pair.interrupt(at, cut, is_one_transaction, work).await;
        match (ended.done, ended.at_commit) {
            (Some(Ok(reply)), Some(Moment::Before)) => {
                Err(format!("{reply:?}, though the server did not commit it"))
            }
            (Some(done), _) => confirmed(done),
            (None, _) => Ok(None),
        }
    }

    /// Performs drawn steps until one is not as the model and the oracle say.
    async fn history(&self, chance: &mut Chance, seen: &RefCell<Seen>) -> Outcome {
        let empty = "DELETE FROM age_event; DELETE FROM age_session; DELETE FROM age_user";
        self.world.raw(empty).await.unwrap();
        let (mut history, mut judged) = (History::new(chance), Judged::default());
        let mut outcome = Outcome::default();
        for _ in 0..DATABASE_STEPS {
            let step = history.step(chance);
            let replies = self.perform(&step).await;
            outcome.trace.push(format!("{step:?}: {replies:?}"));
            let done = match replies {
                Ok(replies) => self.agree(&mut judged, &step, &replies, seen).await,
                Err(error) => Err(error),
            };
            if let Err(violation) = done {
                outcome.violation = Some(violation);
                break;
            }
        }
        outcome
    }

    /// Finds the order in which the model gives these replies and holds what is stored.
    async fn agree(
        &self,
        judged: &mut Judged,
        step: &Step,
        replies: &[Option<Reply>],
        seen: &RefCell<Seen>,
    ) -> Result<(), String> {
        let mut rows = self.world.texts(ROWS).await;
        rows.sort();
        let fits = |order: &&&[usize]| {
            let mut model = judged.model.clone();
            let is_complete =
                (0..replies.len()).all(|at| replies[at].is_none() || order.contains(&at));
            is_complete
                && order.iter().all(|at| at < &replies.len())
                && order.iter().all(|at| {
                    let reply = model.apply(&step.commands[*at]);
                    replies[*at].as_ref().is_none_or(|known| *known == reply)
                })
                && model.rows() == rows
        };
        let Some(order) = ORDERS.iter().find(fits) else {
            let expected = judged.model.rows();
            return Err(format!(
                "no order explains {rows:#?}, which were {expected:#?}"
            ));
        };
        let mode = match step.mode {
            Mode::Alone(_) => "alone".to_owned(),
            Mode::Together => format!("together as {order:?}"),
            Mode::Cut(..) if replies == [None] => format!("cut, {} done", order.len()),
            Mode::Cut(..) => "cut in vain".to_owned(),
        };
        *seen.borrow_mut().entry(mode).or_default() += 1;
        for reply in replies.iter().flatten() {
            let text = format!("{reply:?}");
            let name = text
                .split([' ', '{', '['])
                .next()
                .unwrap_or_default()
                .to_owned();
            *seen.borrow_mut().entry(name).or_default() += 1;
        }
        judged.apply(&step.commands, order)
    }
}

async fn execute(store: &Store, command: &Command) -> Result<Reply, StoreError> {
    let ages = store.ages();
    let nothing = PruneBefore {
        keys_us: i64::MIN,
        refusals_us: i64::MIN,
        suggestions_us: i64::MIN,
        age_sessions_us: i64::MIN,
        age_events_us: i64::MIN,
        feed_items_us: None,
    };
    Ok(match command {
        Command::Open {
            user,
            subject,
            now_us,
            expires_us,
        } => Reply::Opened(
            ages.open_session(user, subject, *now_us, *expires_us)
                .await?,
        ),
        Command::Record { event, received_us } => {
            Reply::Recorded(ages.record_event(event, clock(*received_us)).await?)
        }
        Command::Show { user, now_us } => Reply::Shown(ages.user(user, clock(*now_us)).await?),
        Command::PruneSessions { before_us } => {
            let before = PruneBefore {
                age_sessions_us: *before_us,
                ..nothing
            };
            Reply::Pruned(store.prune(&before).await?.age_sessions)
        }
        Command::PruneEvents { before_us } => {
            let before = PruneBefore {
                age_events_us: *before_us,
                ..nothing
            };
            Reply::Pruned(store.prune(&before).await?.age_events)
        }
        Command::Forget { user } => {
            let Forgotten {
                age_event,
                age_session,
                age_user,
                ..
            } = store.forget(user).await?;
            Reply::Forgotten([age_event, age_session, age_user])
        }
    })
}

/// The reply, unless it is not known whether the command was committed.
fn confirmed(done: Result<Reply, StoreError>) -> Result<Option<Reply>, String> {
    match done {
        Ok(reply) => Ok(Some(reply)),
        Err(StoreError::Unavailable(_) | StoreError::Unconfirmed(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn histories_agree(runtime: &Runtime, world: World) {
    let kind = if world.is_sqlite() {
        "SQLite"
    } else {
        "PostgreSQL"
    };
    let (pair, seen) = (runtime.block_on(Pair::open(&world)), RefCell::default());
    let database = Database { world, pair };
    let run = |chance: &mut Chance| runtime.block_on(database.history(chance, &seen));
    if let Err(failure) = explore_within(SHRINKING, 0..seeds(DATABASE_SEEDS), run) {
        panic!("{kind}: {failure}");
    }
    println!("{kind}: {:#?}", seen.borrow());
    // how far SQLite is when the work is dropped depends on its threads
    let is_seen = |name: &str| seen.borrow().contains_key(name);
    assert!(kind == "SQLite" || ["cut, 0 done", "cut, 1 done"].into_iter().all(is_seen));
    runtime.block_on(database.pair.close());
}

#[test]
fn histories_agree_on_sqlite() {
    with_world(Kind::Sqlite, histories_agree);
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn histories_agree_on_postgres() {
    with_world(Kind::Postgres, histories_agree);
}
