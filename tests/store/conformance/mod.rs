//! Random histories of the relay on the database and on a model that keeps its rows in maps: after
//! each command both have given the same reply, and hold the same. A process loses the database at
//! any request of a command, and at its commit; then the command is done as a whole or not at all.
//! Of concurrent commands, some order explains the replies and the rows.
//! On the model alone, no history leads to rows that a unique index forbids.
//!
//! Reading order: `history` (what is drawn), `model`.

mod history;
mod model;

use crate::pair::{Interrupted, Pair};
use crate::tables::DRIP;
use crate::toolkit::{Chance, Outcome, explore, explore_within};
use crate::wire::Moment;
use crate::world::{Kind, World, seeds, with_world};
use futures_util::future::join_all;
use history::{History, Step};
use model::{Command, Model, ROWS, Reply};
use portcullis_store::{Intended, IntentId, IntentState, Search, Store, StoreError, Verified};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tokio::runtime::Runtime;

const SEEDS: u64 = 6;
/// Of the model alone.
const MODEL_SEEDS: u64 = 256;
const STEPS: u32 = 200;
/// Histories to shrink a failure.
const SHRINKING: usize = 100;

/// How often each reply and each end of an interrupted command was seen.
type Seen = BTreeMap<&'static str, u32>;

/// The result of a command that was performed.
enum Performed {
    Done(Reply),
    /// It is done or not.
    Unknown {
        /// The moment, if the session was ended at its commit.
        at_commit: Option<Moment>,
        /// Whether the store said so.
        is_unconfirmed: bool,
    },
}

async fn execute(store: &Store, step: &Step) -> Result<Reply, StoreError> {
    let now_us = step.now_us;
    Ok(match &step.command {
        Command::Agree(epoch, patience) => Reply::Agreed(store.agree(epoch, *patience).await?),
        Command::Claim((epoch, key), digest, token) => Reply::Claimed(
            store
                .keys(epoch)
                .claim(key, DRIP, digest, token, now_us)
                .await?,
        ),
        Command::Release((epoch, key), token) => {
            Reply::Done(store.keys(epoch).release(key, token).await?)
        }
        Command::Link((epoch, key), digest, id) => Reply::Done(
            store
                .keys(epoch)
                .link(key, DRIP, digest, *id, now_us)
                .await?,
        ),
        Command::Answer((epoch, key), digest, id) => Reply::Done(
            store
                .keys(epoch)
                .answer(key, DRIP, digest, *id, 200, "x")
                .await?,
        ),
        Command::Apply(id, change) => {
            Reply::Done(store.intents().apply(*id, change, now_us).await?)
        }
        Command::Intend(new) => Reply::Intended(store.intents().intend(new, now_us).await?),
    })
}

async fn perform(pair: &Pair, step: &Step) -> Result<Performed, String> {
    use Command::{Apply, Intend, Link};
    let work = execute(&pair.stores[step.store], step);
    let Some(cut) = step.cut else {
        return work
            .await
            .map(Performed::Done)
            .map_err(|error| error.to_string());
    };
    let is_one_transaction = matches!(step.command, Link(..) | Apply(..) | Intend(..));
    let Interrupted { done, at_commit } = pair
        .interrupt(step.store, cut, is_one_transaction, work)
        .await;
    match done {
        Some(Ok(reply)) if at_commit.is_none() => Ok(Performed::Done(reply)),
        Some(Ok(reply)) => Err(format!("{reply:?}, though no commit was confirmed")),
        Some(Err(StoreError::Unavailable(_))) | None => Ok(Performed::Unknown {
            at_commit,
            is_unconfirmed: false,
        }),
        Some(Err(StoreError::Unconfirmed(_))) => Ok(Performed::Unknown {
            at_commit,
            is_unconfirmed: true,
        }),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// The name of a reply in what was seen.
fn name_of(reply: &Reply) -> &'static str {
    match reply {
        Reply::Agreed(_) => "Agreed",
        Reply::Claimed(_) => "Claimed",
        Reply::Done(true) => "done",
        Reply::Done(false) => "not done",
        Reply::Intended(Intended::New(_)) => "New",
        Reply::Intended(Intended::Known(_)) => "Known",
        Reply::Intended(Intended::KeyConflict) => "KeyConflict",
        Reply::Intended(Intended::NonceTaken(_)) => "NonceTaken",
        Reply::Intended(Intended::Elsewhere(_)) => "Elsewhere",
        Reply::Intended(Intended::OtherChain) => "OtherChain",
        Reply::Intended(Intended::OverBudget(_)) => "OverBudget",
        Reply::Intended(Intended::TooSoon { .. }) => "TooSoon",
    }
}

/// Brings the model to where the database is, if the command explains that.
async fn follow(
    world: &World,
    store: &Store,
    model: &mut Model,
    step: &Step,
    performed: &Performed,
) -> Result<&'static str, String> {
    let mut after = model.clone();
    let reply = after.perform(&step.command, step.now_us);
    let found = contents(world, store).await?;
    let is_after = found == expected(&after);
    let is_before = found == expected(model);
    let seen = match performed {
        Performed::Done(done) if *done != reply => return Err(format!("not {reply:?}")),
        Performed::Done(_) if is_after => name_of(&reply),
        // the caller of a new intent must know that it may be stored
        Performed::Unknown {
            at_commit: Some(_),
            is_unconfirmed: false,
        } if matches!(reply, Reply::Intended(Intended::New(_))) => {
            return Err(format!("{reply:?} is not known to be unconfirmed"));
        }
        Performed::Unknown {
            at_commit: Some(Moment::Before),
            ..
        } if is_before => "cut at its commit",
        Performed::Unknown {
            at_commit: Some(Moment::After),
            ..
        } if is_after => "cut after its commit",
        Performed::Unknown {
            at_commit: None, ..
        } if is_after && !is_before => "cut after it was done",
        Performed::Unknown {
            at_commit: None, ..
        } if is_before => "cut before it was done",
        _ => return Err(format!("{found:#?} is not explained by {reply:?}")),
    };
    if is_after {
        *model = after;
    }
    Ok(seen)
}

/// Performs commands concurrently, and brings the model to where the database is, if some order of
/// them explains that.
async fn follow_all(
    world: &World,
    pair: &Pair,
    model: &mut Model,
    steps: &[Step],
) -> Result<Vec<&'static str>, String> {
    let all = steps
        .iter()
        .map(|step| execute(&pair.stores[step.store], step));
    let mut replies = Vec::new();
    for reply in join_all(all).await {
        replies.push(reply.map_err(|error| error.to_string())?);
    }
    let found = contents(world, &pair.stores[0]).await?;
    let entries = entries(&pair.stores[0]).await;
    for order in orders(steps.len()) {
        let mut after = model.clone();
        let is_so = order.iter().all(|at| {
            let step = &steps[*at];
            after.perform(&step.command, step.now_us) == replies[*at]
        });
        if is_so && found == expected(&after) && entries == after.0.entries {
            *model = after;
            let names = replies.iter().map(name_of);
            return Ok(names.chain(["concurrent"]).collect());
        }
    }
    Err(format!(
        "no order of {steps:?} explains {replies:?} and {found:#?}"
    ))
}

/// The orders of this many commands.
fn orders(number: usize) -> Vec<Vec<usize>> {
    let Some(last) = number.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let insert = |order: Vec<usize>| {
        (0..number).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(insert).collect()
}

type Contents = (Vec<portcullis_store::Intent>, Vec<String>);

fn expected(model: &Model) -> Contents {
    (model.0.intents.values().cloned().collect(), model.rows())
}

async fn contents(world: &World, store: &Store) -> Result<Contents, String> {
    let intents = store
        .journal()
        .search(&Search::default(), i64::MAX, 500)
        .await;
    let mut intents = intents.map_err(|error| error.to_string())?;
    intents.reverse();
    let mut rows = world.texts(ROWS).await;
    rows.sort();
    Ok((intents, rows))
}

async fn history(world: &World, chance: &mut Chance, seen: &RefCell<Seen>) -> Outcome {
    world.empty().await;
    let pair = Pair::open(world).await;
    let (mut history, mut model) = (History::new(), Model::default());
    let mut outcome = Outcome::default();
    for _ in 0..STEPS {
        let others = history.concurrent(chance, &model);
        if !others.is_empty() {
            outcome.trace.push(format!("{others:?}"));
            match follow_all(world, &pair, &mut model, &others).await {
                Ok(names) => {
                    for name in names {
                        *seen.borrow_mut().entry(name).or_default() += 1;
                    }
                }
                Err(violation) => {
                    outcome.violation = Some(violation);
                    break;
                }
            }
        }
        let step = history.step(chance, &model);
        outcome.trace.push(format!("{step:?}"));
        let followed = match perform(&pair, &step).await {
            Ok(performed) => {
                follow(
                    world,
                    &pair.stores[step.store],
                    &mut model,
                    &step,
                    &performed,
                )
                .await
            }
            Err(error) => Err(error),
        };
        match followed {
            Ok(name) => *seen.borrow_mut().entry(name).or_default() += 1,
            Err(violation) => {
                outcome.violation = Some(violation);
                break;
            }
        }
    }
    if outcome.violation.is_none() {
        outcome.violation = journal_differs(&pair.stores[0], &model).await;
    }
    pair.close().await;
    outcome
}

/// How the journal differs from that of the model, or is broken.
async fn journal_differs(store: &Store, model: &Model) -> Option<String> {
    let entries = entries(store).await;
    if entries != model.0.entries {
        return Some(format!("entries {entries:?}, not {:?}", model.0.entries));
    }
    match store.journal().verify().await {
        Ok(Verified::Whole { .. }) => None,
        other => Some(format!("{other:?}")),
    }
}

async fn entries(store: &Store) -> Vec<(IntentId, IntentState)> {
    let mut entries = Vec::new();
    let mut next = 1;
    loop {
        let page = store.journal().entries(next, 500).await.unwrap();
        let Some(last) = page.last() else {
            return entries;
        };
        next = last.seq + 1;
        entries.extend(
            page.iter()
                .filter_map(|entry| Some((entry.intent?, IntentState::parse(entry.kind.name())?))),
        );
    }
}

/// A history of the model alone, in which a command that is cut is done or not.
fn simulate(chance: &mut Chance) -> Outcome {
    let (mut history, mut model) = (History::new(), Model::default());
    let mut outcome = Outcome::default();
    for _ in 0..STEPS {
        let step = history.step(chance, &model);
        let is_done = chance.choose(2) == 0 || step.cut.is_none();
        outcome.trace.push(format!("{step:?}, done: {is_done}"));
        if is_done {
            model.perform(&step.command, step.now_us);
        }
        outcome.violation = model
            .contradiction()
            .map(|row| format!("there twice: {row}"));
        if outcome.violation.is_some() {
            break;
        }
    }
    outcome
}

#[test]
fn no_decision_contradicts_an_index() {
    if let Err(failure) = explore(0..seeds(MODEL_SEEDS), simulate) {
        panic!("{failure}");
    }
}

fn histories_agree(runtime: &Runtime, world: World) {
    let seen = RefCell::default();
    let run = |chance: &mut Chance| runtime.block_on(history(&world, chance, &seen));
    if let Err(failure) = explore_within(SHRINKING, 0..seeds(SEEDS), run) {
        panic!("{failure}");
    }
    let seen = seen.into_inner();
    println!("{seen:#?}");
    for name in [
        "New",
        "Known",
        "KeyConflict",
        "NonceTaken",
        "Elsewhere",
        "OtherChain",
        "OverBudget",
        "TooSoon",
        "done",
        "cut before it was done",
        "concurrent",
    ] {
        assert!(seen.contains_key(name), "{name} is missing in {seen:?}");
    }
    let at_commit = ["cut at its commit", "cut after its commit"];
    let is_cut = at_commit.iter().all(|name| seen.contains_key(name));
    assert!(world.is_sqlite() || is_cut, "{seen:?}");
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
