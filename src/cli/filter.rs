//! The arguments of `portcullis journal` that select entries.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use portcullis_base::config;
use portcullis_base::io::clock::micros;
use portcullis_filters::ledger::FILL_NONCE;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{Endpoint, TransactionKind};
use portcullis_store::{EntryFilter, EntryKind, IntentState};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Selects entries.
#[derive(Debug, clap::Args)]
pub(super) struct FilterArguments {
    /// Only entries with a higher number.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true,
        value_parser = clap::value_parser!(i64).range(0..))]
    after: i64,
    /// Only entries since a time in RFC 3339, or of the last time span, such as 24h.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Since>,
    /// Only entries of a state; `refused` selects refusals.
    #[arg(long, value_name = "STATE", value_parser = state())]
    state: Option<EntryKind>,
    /// Only entries of an operation.
    #[arg(long, value_name = "OPERATION", value_parser = operation())]
    operation: Option<String>,
}

/// The time from which entries are selected, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// After 1970 UTC.
    At(i64),
    /// Before now.
    Ago(i64),
}

impl FilterArguments {
    /// The filter, at this time in microseconds since 1970.
    pub(super) fn at(&self, now_us: i64) -> EntryFilter {
        EntryFilter {
            after: self.after,
            since_us: match self.since {
                None => i64::MIN,
                Some(Since::At(at_us)) => at_us,
                Some(Since::Ago(us)) => now_us.saturating_sub(us),
            },
            kind: self.state,
            operation: self.operation.clone(),
        }
    }
}

fn since(text: &str) -> Result<Since, String> {
    if let Some(ago) = config::duration(text) {
        return Ok(Since::Ago(micros(ago)));
    }
    let at = OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|_| "expected a time such as 2026-11-24T17:00:00Z, or a time span such as 24h")?;
    let at_us = at.unix_timestamp_nanos().div_euclid(1_000);
    i64::try_from(at_us)
        .map(Since::At)
        .map_err(|_| "the time is too far away".to_owned())
}

fn state() -> impl TypedValueParser<Value = EntryKind> {
    let names = IntentState::ALL.map(IntentState::name);
    let names = names.into_iter().chain([EntryKind::Refused.name()]);
    PossibleValuesParser::new(names)
        .map(|name| EntryKind::parse(&name).expect("each of these is the name of a kind"))
}

fn operation() -> impl TypedValueParser<Value = String> {
    let names = OperationKind::ALL.map(OperationKind::name);
    let users = TransactionKind::ALL.map(TransactionKind::name);
    // a transaction that is refused before it is decoded has the name of its path
    let others = [FILL_NONCE, Endpoint::Rpc.name()];
    PossibleValuesParser::new(names.into_iter().chain(users).chain(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_a_span() {
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", Some(Since::At(1_000_000))),
            ("1970-01-01T01:00:00.5+01:00", Some(Since::At(500_000))),
            ("24h", Some(Since::Ago(86_400_000_000))),
            ("0s", Some(Since::Ago(0))),
            ("2026-11-24", None),
            ("yesterday", None),
            ("24", None),
            ("", None),
        ] {
            assert_eq!(since(text).ok(), expected, "{text:?}");
        }
    }
}
