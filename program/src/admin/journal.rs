//! The write journal for the page: `/journal?…` and `/journal/entries?intent=…`.
//!
//! In: a query of known keys, each once; anything else is refused with a sentence. Out: JSON,
//! newest first, in pages. It contains neither request bodies nor signed transactions: `portcullis
//! journal show` has both.

use super::snapshot::millis;
use portcullis_base::io::clock;
use portcullis_edge::reply::Reply;
use portcullis_filters::felt::Felt;
use portcullis_store::{Entry, Intent, IntentId, IntentState, Journal, Search, StoreError};
use serde_json::{Value, json};

/// Writes on a page.
const PAGE: u32 = 25;
/// The longest name of an operation, in bytes.
const MAX_NAME: usize = 64;
/// The state shown for refusals, which are not intents.
const REFUSED: &str = "refused";

/// A query of the journal.
#[derive(Debug)]
pub(super) enum JournalQuery {
    /// One intent.
    Intent(IntentId),
    /// Intents that match a search.
    Intents(Search, Before),
    /// Refusals of one operation, or of all.
    Refusals(Option<String>, Before),
    /// The entries of an intent.
    Entries(IntentId),
}

/// The number below which a page begins.
type Before = i64;

/// An intent as the page shows it. Its state is `intended` to `lost`.
fn intent(intent: Intent) -> Value {
    json!({
        "id": intent.id.0,
        "at_ms": of_micros(intent.created_us),
        "updated_ms": of_micros(intent.updated_us),
        "operation": intent.operation,
        "state": intent.state.name(),
        "detail": intent.detail,
        "transaction_hash": intent.transaction_hash.to_string(),
        "subject": intent.subject.map(|felt| felt.to_string()),
        "signer": intent.signer.to_string(),
        "nonce": intent.nonce,
        "epoch": intent.epoch,
    })
}

/// A refusal as the page shows it: an entry without an intent.
fn refusal(entry: Entry) -> Value {
    json!({
        "id": entry.seq,
        "at_ms": of_micros(entry.at_us),
        "updated_ms": of_micros(entry.at_us),
        "operation": entry.operation,
        "state": REFUSED,
        "detail": entry.detail,
        "transaction_hash": null,
        "subject": null,
        "signer": null,
        "nonce": null,
        "epoch": null,
    })
}

/// An entry of an intent; its detail is the text of a JSON object, as it is hashed.
fn step(entry: Entry) -> Value {
    json!({
        "seq": entry.seq,
        "at_ms": of_micros(entry.at_us),
        "kind": entry.kind.name(),
        "detail": entry.detail,
        "hash": entry.hash,
    })
}

fn of_micros(us: i64) -> u64 {
    millis(clock::at_us(us))
}

impl JournalQuery {
    /// Reads the query of `/journal`.
    ///
    /// # Errors
    /// Returns a sentence that says what is wrong.
    pub(super) fn search(query: &[u8]) -> Result<Self, String> {
        const KEYS: [&str; 6] = ["intent", "hash", "subject", "state", "operation", "before"];
        let [intent, hash, subject, state, operation, before] = values(query, KEYS)?;
        if let Some(intent) = intent {
            if [hash, subject, state, operation, before]
                .iter()
                .any(Option::is_some)
            {
                return Err("intent cannot be combined with other parameters".to_owned());
            }
            return Ok(Self::Intent(IntentId(number("intent", &intent)?)));
        }
        let before = before.map_or(Ok(i64::MAX), |before| number("before", &before))?;
        let operation = operation.map(name).transpose()?;
        let search = Search {
            hash: hash.map(|hash| felt("hash", &hash)).transpose()?,
            subject: subject
                .map(|subject| felt("subject", &subject))
                .transpose()?,
            state: None,
            operation,
        };
        match state.as_deref() {
            None => Ok(Self::Intents(search, before)),
            Some(REFUSED) if search.hash.is_some() || search.subject.is_some() => {
                Err("a refusal has no hash and no subject".to_owned())
            }
            Some(REFUSED) => Ok(Self::Refusals(search.operation, before)),
            Some(state) => {
                let state = IntentState::parse(state).ok_or_else(|| {
                    let states = IntentState::ALL.map(IntentState::name).join(", ");
                    format!("state is one of {states}, {REFUSED}")
                })?;
                Ok(Self::Intents(
                    Search {
                        state: Some(state),
                        ..search
                    },
                    before,
                ))
            }
        }
    }

    /// Reads the query of `/journal/entries`.
    ///
    /// # Errors
    /// Returns a sentence that says what is wrong.
    pub(super) fn entries(query: &[u8]) -> Result<Self, String> {
        let [intent] = values(query, ["intent"])?;
        let intent = intent.ok_or("intent is missing")?;
        Ok(Self::Entries(IntentId(number("intent", &intent)?)))
    }

    /// Runs the query.
    pub(super) async fn answer(self, journal: &Journal) -> Reply {
        match self.find(journal).await {
            Ok(found) => Reply::serialize(200, &found),
            Err(error) => {
                error.log();
                Reply::text(503, "the store is unavailable: try again\n")
            }
        }
    }

    async fn find(self, journal: &Journal) -> Result<Value, StoreError> {
        match self {
            Self::Intent(id) => Ok(page(
                journal.intent(id).await?.into_iter().collect(),
                intent,
            )),
            Self::Intents(search, before) => {
                Ok(page(journal.search(&search, before, PAGE).await?, intent))
            }
            Self::Refusals(operation, before) => Ok(page(
                journal.refusals(operation.as_deref(), before, PAGE).await?,
                refusal,
            )),
            Self::Entries(id) => Ok(journal
                .entries_of(id)
                .await?
                .into_iter()
                .map(step)
                .collect()),
        }
    }
}

/// A page of writes; `before` is the parameter for older ones, if there may be any.
fn page<T>(found: Vec<T>, show: fn(T) -> Value) -> Value {
    let is_full = found.len() == PAGE as usize;
    let writes: Vec<Value> = found.into_iter().map(show).collect();
    let before = writes
        .last()
        .filter(|_| is_full)
        .map(|write| write["id"].clone());
    json!({ "writes": writes, "before": before })
}

/// The values of the known keys, each at most once; an empty value counts as absent.
fn values<const KEYS: usize>(
    query: &[u8],
    keys: [&'static str; KEYS],
) -> Result<[Option<String>; KEYS], String> {
    let mut values = [const { None }; KEYS];
    for (key, value) in form_urlencoded::parse(query) {
        let place = keys.iter().position(|known| *known == key);
        let place = place.ok_or_else(|| format!("the parameters are {}", keys.join(", ")))?;
        if values[place].replace(value.into_owned()).is_some() {
            return Err(format!("{} appears twice", keys[place]));
        }
    }
    Ok(values.map(|value: Option<String>| value.filter(|text| !text.is_empty())))
}

fn number(key: &str, text: &str) -> Result<i64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{key} is a number from 1"))
}

fn felt(key: &str, text: &str) -> Result<Felt, String> {
    Felt::parse(text).ok_or_else(|| format!("{key} is 0x and up to 64 hexadecimal digits"))
}

/// The name of an operation, which need not exist.
fn name(text: String) -> Result<String, String> {
    let is_name = text.len() <= MAX_NAME
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || b"-/_".contains(&byte));
    is_name
        .then_some(text)
        .ok_or_else(|| "operation is a name in lower case".to_owned())
}
