//! The write journal as the page searches it: `/journal?…` and `/journal/entries?intent=…`.
//!
//! In: a query of known keys, each once; anything else is refused with a sentence. Out: JSON,
//! newest first, in pages. Neither the request's body nor the signed transaction is shown:
//! `portcullis journal show` has both.

use super::snapshot::millis;
use crate::reply::Reply;
use crate::store::{Entry, Intent, IntentId, IntentState, Journal, Search, StoreError};
use portcullis_filters::felt::Felt;
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// Writes on a page.
const PAGE: u32 = 25;
/// Characters of an operation's name.
const LONGEST_NAME: usize = 64;
/// The state that refusals are shown in: they are no intents.
const REFUSED: &str = "refused";

/// What is looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// One intent.
    Intent(IntentId),
    /// Intents like this.
    Intents(Search, Before),
    /// Refusals, of an operation or of any.
    Refusals(Option<String>, Before),
    /// The entries of an intent.
    Entries(IntentId),
}

/// Where a page begins: below this number.
type Before = i64;

/// A page of what was found.
#[derive(Debug, Serialize)]
struct Page {
    writes: Vec<Write>,
    /// What to ask for to see older ones, if there may be some.
    before: Option<i64>,
}

/// An intent, or a refusal.
#[derive(Debug, Serialize)]
struct Write {
    /// The number of the intent, or of the refusal's entry.
    id: i64,
    /// When it was intended or refused, in milliseconds since 1970.
    at_ms: u64,
    /// When its state last changed.
    updated_ms: u64,
    operation: String,
    /// `intended` to `lost`, or `refused`.
    state: &'static str,
    /// What was said when it came there.
    detail: Option<String>,
    transaction_hash: Option<String>,
    subject: Option<String>,
    signer: Option<String>,
    nonce: Option<u64>,
    epoch: Option<String>,
}

/// One entry of an intent.
#[derive(Debug, Serialize)]
struct Step {
    seq: i64,
    at_ms: u64,
    kind: &'static str,
    /// A JSON object as it is hashed.
    detail: String,
    hash: String,
}

impl From<Intent> for Write {
    fn from(intent: Intent) -> Self {
        Self {
            id: intent.id.0,
            at_ms: of_micros(intent.created_us),
            updated_ms: of_micros(intent.updated_us),
            operation: intent.operation,
            state: intent.state.name(),
            detail: intent.detail,
            transaction_hash: Some(intent.transaction_hash.to_string()),
            subject: intent.subject.map(|felt| felt.to_string()),
            signer: Some(intent.signer.to_string()),
            nonce: Some(intent.nonce),
            epoch: Some(intent.epoch),
        }
    }
}

impl From<Entry> for Write {
    fn from(entry: Entry) -> Self {
        Self {
            id: entry.seq,
            at_ms: of_micros(entry.at_us),
            updated_ms: of_micros(entry.at_us),
            operation: entry.operation,
            state: REFUSED,
            detail: Some(entry.detail),
            transaction_hash: None,
            subject: None,
            signer: None,
            nonce: None,
            epoch: None,
        }
    }
}

fn of_micros(us: i64) -> u64 {
    millis(SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap_or_default()))
}

impl Asked {
    /// Reads the query of `/journal`.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub(super) fn search(query: &[u8]) -> Result<Self, String> {
        const KEYS: [&str; 6] = ["intent", "hash", "subject", "state", "operation", "before"];
        let [intent, hash, subject, state, operation, before] = values(query, KEYS)?;
        if let Some(intent) = intent {
            if [hash, subject, state, operation, before].iter().any(Option::is_some) {
                return Err("intent stands alone: there is one at most".to_owned());
            }
            return Ok(Self::Intent(IntentId(number("intent", &intent)?)));
        }
        let before = before.map_or(Ok(i64::MAX), |before| number("before", &before))?;
        let operation = operation.map(name).transpose()?;
        let search = Search {
            hash: hash.map(|hash| felt("hash", &hash)).transpose()?,
            subject: subject.map(|subject| felt("subject", &subject)).transpose()?,
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
                Ok(Self::Intents(Search { state: Some(state), ..search }, before))
            }
        }
    }

    /// Reads the query of `/journal/entries`.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub(super) fn entries(query: &[u8]) -> Result<Self, String> {
        let [intent] = values(query, ["intent"])?;
        let intent = intent.ok_or("intent is missing")?;
        Ok(Self::Entries(IntentId(number("intent", &intent)?)))
    }

    /// What is found.
    pub(super) async fn answer(self, journal: &Journal) -> Reply {
        match self.find(journal).await {
            Ok(json) => Reply::json(200, json),
            Err(error) => {
                error.log();
                Reply::text(503, "the store does not answer: try again\n")
            }
        }
    }

    async fn find(self, journal: &Journal) -> Result<String, StoreError> {
        let (writes, is_full): (Vec<Write>, bool) = match self {
            Self::Intent(id) => {
                (journal.intent(id).await?.map(Write::from).into_iter().collect(), false)
            }
            Self::Intents(search, before) => page(journal.search(&search, before, PAGE).await?),
            Self::Refusals(operation, before) => {
                page(journal.refusals(operation.as_deref(), before, PAGE).await?)
            }
            Self::Entries(id) => {
                let steps = journal.entries_of(id).await?.into_iter().map(|entry| Step {
                    seq: entry.seq,
                    at_ms: of_micros(entry.at_us),
                    kind: entry.kind.name(),
                    detail: entry.detail,
                    hash: entry.hash,
                });
                return Ok(json(&steps.collect::<Vec<_>>()));
            }
        };
        let before = writes.last().filter(|_| is_full).map(|write| write.id);
        Ok(json(&Page { writes, before }))
    }
}

/// What was found, and whether there may be more.
fn page<T: Into<Write>>(found: Vec<T>) -> (Vec<Write>, bool) {
    let is_full = found.len() == PAGE as usize;
    (found.into_iter().map(Into::into).collect(), is_full)
}

/// A value of ours as JSON.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own shapes have text for keys")
}

/// The values of the known keys, each given once at most; an empty one counts as none.
fn values<const KEYS: usize>(
    query: &[u8],
    keys: [&'static str; KEYS],
) -> Result<[Option<String>; KEYS], String> {
    let mut values = [const { None }; KEYS];
    for (key, value) in form_urlencoded::parse(query) {
        let place = keys.iter().position(|known| *known == key);
        let place = place.ok_or_else(|| format!("the parameters are {}", keys.join(", ")))?;
        if values[place].replace(value.into_owned()).is_some() {
            return Err(format!("{} is there twice", keys[place]));
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

/// The name of an operation, which need not be one that there is.
fn name(text: String) -> Result<String, String> {
    let is_name = text.len() <= LONGEST_NAME
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || b"-/_".contains(&byte));
    is_name.then_some(text).ok_or_else(|| "operation is the name of one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_whole_or_refused_with_a_sentence() {
        let felt = Felt::from(0xab_u64);
        let search = |search| Ok(Asked::Intents(search, i64::MAX));
        for (query, expected) in [
            ("", search(Search::default())),
            ("hash=&state=", search(Search::default())),
            ("hash=0x0AB", search(Search { hash: Some(felt), ..Search::default() })),
            ("subject=0xab", search(Search { subject: Some(felt), ..Search::default() })),
            ("state=lost", search(Search { state: Some(IntentState::Lost), ..Search::default() })),
            (
                "operation=mint-card",
                search(Search { operation: Some("mint-card".into()), ..Search::default() }),
            ),
            ("before=7", Ok(Asked::Intents(Search::default(), 7))),
            ("intent=12", Ok(Asked::Intent(IntentId(12)))),
            ("state=refused&operation=rpc&before=3", Ok(Asked::Refusals(Some("rpc".into()), 3))),
            ("hash=12", Err("hash is 0x")),
            ("hash=0xg", Err("hash is 0x")),
            ("subject=<b>", Err("subject is 0x")),
            ("state=gone", Err("state is one of intended, sent")),
            ("operation=Mint", Err("operation is the name")),
            ("before=0", Err("before is a number")),
            ("before=-1", Err("before is a number")),
            ("intent=x", Err("intent is a number")),
            ("intent=99999999999999999999", Err("intent is a number")),
            ("intent=1&state=sent", Err("intent stands alone")),
            ("state=refused&hash=0x1", Err("a refusal has no hash")),
            ("hash=0x1&hash=0x1", Err("hash is there twice")),
            ("q=1", Err("the parameters are intent, hash, subject, state, operation, before")),
        ] {
            match (Asked::search(query.as_bytes()), expected) {
                (Err(message), Err(start)) => {
                    assert!(message.starts_with(start), "{query}: {message}");
                }
                (asked, expected) => {
                    assert_eq!(asked, expected.map_err(str::to_owned), "{query}");
                }
            }
        }
        assert_eq!(Asked::entries(b"intent=3"), Ok(Asked::Entries(IntentId(3))));
        assert!(Asked::entries(b"").is_err() && Asked::entries(b"id=3").is_err());
    }
}
