//! Conversions from a TOML value to a typed one, each with the sentence for what is refused:
//! "expected …, found …".
//!
//! Pure functions of one value. Which key uses which, and its range, is in `check.rs`.

use std::ops::RangeInclusive;
use std::time::Duration;

use portcullis_filters::rpc::Method;
use toml::de::DeValue;

use super::address::{CorsOrigins, NodeUrl};
use super::error::{quoted, shown};
use super::suggest::closest;
use super::units::{self, Readable, Size};

/// The prefix that the names of all methods share, and that tells nothing about likeness.
const METHOD_PREFIX: &str = "starknet_";

/// An integer in a range; `why` tells the reason of the bounds.
pub(super) fn integer<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
    why: &'static str,
) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let (low, high) = (range.start(), range.end());
        let refused = || refusal(&format!("an integer from {low} to {high} ({why})"), value);
        let written = value.as_integer().ok_or_else(refused)?;
        let number = u64::from_str_radix(written.as_str(), written.radix()).ok();
        let number = number.filter(|number| range.contains(number)).ok_or_else(refused)?;
        T::try_from(number).map_err(|_| refused())
    }
}

/// A duration in a range; `why` tells the reason of the bounds.
pub(super) fn duration(
    range: RangeInclusive<Duration>,
    why: &'static str,
) -> impl Fn(&DeValue<'_>) -> Result<Duration, String> {
    const FORM: &str = "a duration with its unit (ms, s, m, h or d), such as \"8s\"";
    move |value| {
        let duration = value.as_str().and_then(units::duration);
        let duration = duration.ok_or_else(|| refusal(FORM, value))?;
        if range.contains(&duration) {
            return Ok(duration);
        }
        let (low, high) = (Readable(*range.start()), Readable(*range.end()));
        Err(refusal(&format!("a duration from {low} to {high} ({why})"), value))
    }
}

/// A size in a range; `why` tells the reason of the bounds.
pub(super) fn size(
    range: RangeInclusive<Size>,
    why: &'static str,
) -> impl Fn(&DeValue<'_>) -> Result<Size, String> {
    const FORM: &str = "a size with its unit (B, KiB, MiB or GiB), such as \"64 KiB\"";
    move |value| {
        let size = value.as_str().and_then(Size::parse);
        let size = size.ok_or_else(|| refusal(FORM, value))?;
        if range.contains(&size) {
            return Ok(size);
        }
        let (low, high) = (range.start(), range.end());
        Err(refusal(&format!("a size from {low} to {high} ({why})"), value))
    }
}

/// A flag that has one value only; `why` tells the reason.
pub(super) fn boolean(
    only: bool,
    why: &'static str,
) -> impl Fn(&DeValue<'_>) -> Result<(), String> {
    move |value| match value.as_bool() {
        Some(flag) if flag == only => Ok(()),
        _ => Err(refusal(&format!("{only} ({why})"), value)),
    }
}

/// A flag.
pub(super) fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| refusal("true or false", value))
}

/// One word of a closed list.
pub(super) fn choice<T: Copy>(
    choices: &'static [(&'static str, T)],
) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let word = value.as_str();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == word) {
            return Ok(*choice);
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let expected = format!("one of {}", names().collect::<Vec<_>>().join(", "));
        let near = word.and_then(|word| closest(word, names(), |name| name));
        let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
        Err(refusal(&expected, value) + &hint)
    }
}

/// A string that `parse` understands; its error says why it does not.
pub(super) fn text<T>(
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let text = value.as_str().ok_or_else(|| refusal(expected, value))?;
        parse(text).map_err(|why| format!("{}: {why}", refusal(expected, value)))
    }
}

/// The URL of a node. What may hold a password or a key is not shown.
pub(super) fn node_url(value: &DeValue<'_>) -> Result<NodeUrl, String> {
    const EXPECTED: &str = "a URL such as \"http://127.0.0.1:5050/rpc\"";
    let text = value.as_str().ok_or_else(|| refusal(EXPECTED, value))?;
    NodeUrl::parse(text)
        .map_err(|why| format!("expected {EXPECTED}, found {}: {why}", quoted(&without_keys(text))))
}

/// The scheme and the host of a URL, whatever else it holds.
fn without_keys(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let separator = if scheme.is_empty() { "" } else { "://" };
    match rest.find(['/', '?', '#', '@']) {
        _ if rest.contains('@') => format!("{scheme}{separator}…"),
        Some(end) => format!("{scheme}{separator}{}/…", &rest[..end]),
        None => url.to_owned(),
    }
}

/// The name of a read method.
pub(super) fn method(value: &DeValue<'_>) -> Result<Method, String> {
    let word = value.as_str();
    if let Some(method) = word.and_then(Method::parse) {
        return Ok(method);
    }
    let names = || Method::ALL.into_iter().map(Method::name);
    let hint = match word.and_then(|word| closest(word, names(), without_prefix)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("they are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Err(format!("{}; {hint}", refusal("the name of a read method", value)))
}

fn without_prefix(name: &str) -> &str {
    name.strip_prefix(METHOD_PREFIX).unwrap_or(name)
}

/// Origins that may read answers: `"*"` alone, or a list without it.
pub(super) fn cors_origins(origins: Vec<String>) -> Result<CorsOrigins, String> {
    if origins == ["*"] {
        return Ok(CorsOrigins::Any);
    }
    if origins.iter().any(|origin| origin == "*") {
        return Err("expected \"*\" alone or a list of origins, found both".to_owned());
    }
    distinct(origins, Clone::clone).map(CorsOrigins::List)
}

/// The items of a list, unless one is there twice.
pub(super) fn distinct<T: PartialEq>(
    items: Vec<T>,
    name: impl Fn(&T) -> String,
) -> Result<Vec<T>, String> {
    let twice = items.iter().enumerate().find(|(index, item)| items[..*index].contains(item));
    match twice {
        Some((_, item)) => Err(format!("expected each item once, found {} twice", name(item))),
        None => Ok(items),
    }
}

/// "expected …, found …".
pub(super) fn refusal(expected: &str, value: &DeValue<'_>) -> String {
    let found = match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => format!("the integer {}", shown(&number.to_string())),
        DeValue::Float(number) => format!("the float {}", shown(&number.to_string())),
        DeValue::Boolean(flag) => format!("the boolean {flag}"),
        DeValue::Datetime(time) => format!("the date {time}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("expected {expected}, found {found}")
}
