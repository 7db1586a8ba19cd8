//! `[[gateway.clients]]`: networks whose clients have limits of their own.

use std::slice;

use ipnet::IpNet;
use portcullis_filters::networks::canonical;
use toml::de::{DeTable, DeValue};

use super::error::{closest, shown};
use super::surface::{in_flight, networks, rate};
use super::values::{Converted, Value, ValueError, mismatch};

const MEMBERS: [&str; 3] = ["networks", "requests_per_minute", "max_in_flight"];
const FORM: &str = "a table with networks, requests_per_minute and max_in_flight";

/// The limits of each client in some networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLimits {
    /// The networks; at least one.
    pub networks: Vec<IpNet>,
    /// Requests of each client in any 60 seconds, unless those of all clients apply.
    pub requests_per_minute: Option<u32>,
    /// Concurrent requests of each client, unless those of all clients apply.
    pub max_in_flight: Option<usize>,
}

/// Converts the entries. A network is in one of them only.
pub(super) fn network_limits(value: &Value<'_>) -> Converted<Vec<NetworkLimits>> {
    let entries = match value.get_ref() {
        DeValue::Array(entries) => entries.as_ref(),
        _ => slice::from_ref(value),
    };
    let mut all: Vec<NetworkLimits> = Vec::with_capacity(entries.len());
    let mut errors = Vec::new();
    for entry in entries {
        match limits(entry) {
            Ok(limits) => {
                errors.extend(repeated(entry, &limits, &all));
                all.push(limits);
            }
            Err(mistakes) => errors.extend(mistakes),
        }
    }
    if errors.is_empty() {
        Ok(all)
    } else {
        Err(errors)
    }
}

/// The networks of an entry that an earlier one has.
fn repeated(
    entry: &Value<'_>,
    limits: &NetworkLimits,
    earlier: &[NetworkLimits],
) -> Vec<ValueError> {
    let known: Vec<_> = earlier
        .iter()
        .flat_map(|limits| &limits.networks)
        .map(|network| canonical(*network))
        .collect();
    let mut errors = Vec::new();
    for network in &limits.networks {
        if known.contains(&canonical(*network)) {
            errors.push(ValueError {
                at: entry.span().start,
                message: format!("{network} is in two entries; remove one"),
            });
        }
    }
    errors
}

fn limits(entry: &Value<'_>) -> Converted<NetworkLimits> {
    let DeValue::Table(table) = entry.get_ref() else {
        return mismatch(FORM, entry);
    };
    let mut errors = unknown_members(table);
    let own = member(table, MEMBERS[0], networks(), &mut errors);
    let requests_per_minute = member(table, MEMBERS[1], rate(), &mut errors);
    let max_in_flight = member(table, MEMBERS[2], in_flight(), &mut errors);
    let missing = match (&own, requests_per_minute, max_in_flight) {
        (None, ..) => Some("expected networks, found a table without"),
        (Some(own), ..) if own.is_empty() => Some("expected at least one network, found none"),
        (_, None, None) => {
            Some("expected requests_per_minute, max_in_flight or both, found a table without")
        }
        _ => None,
    };
    match (own, missing) {
        (Some(networks), None) if errors.is_empty() => Ok(NetworkLimits {
            networks,
            requests_per_minute,
            max_in_flight,
        }),
        (_, Some(message)) if errors.is_empty() => Err(vec![ValueError {
            at: entry.span().start,
            message: message.to_owned(),
        }]),
        _ => Err(errors),
    }
}

fn unknown_members(table: &DeTable<'_>) -> Vec<ValueError> {
    let mut errors = Vec::new();
    for name in table.keys() {
        let text = &**name.get_ref();
        if MEMBERS.contains(&text) {
            continue;
        }
        let hint = match closest(text, MEMBERS.into_iter(), |name| name) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("an entry has {}", MEMBERS.join(", ")),
        };
        errors.push(ValueError {
            at: name.span().start,
            message: format!("unknown key {}; {hint}", shown(text)),
        });
    }
    errors
}

/// The converted value of a member, if it is there and right.
fn member<T>(
    table: &DeTable<'_>,
    name: &str,
    convert: impl Fn(&Value<'_>) -> Converted<T>,
    errors: &mut Vec<ValueError>,
) -> Option<T> {
    let (_, value) = table.iter().find(|(own, _)| own.get_ref() == name)?;
    match convert(value) {
        Ok(converted) => Some(converted),
        Err(mistakes) => {
            errors.extend(mistakes.into_iter().map(|mistake| ValueError {
                message: format!("{name}: {}", mistake.message),
                ..mistake
            }));
            None
        }
    }
}
