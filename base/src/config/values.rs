//! Conversions from a TOML value to a typed one, with the message for a refused value: "expected …,
//! found …".
//!
//! Pure functions of one value. The row of each key names its conversion and the bounds.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use portcullis_filters::operations::OperationKind;
use portcullis_filters::rpc::Method;
use toml::Spanned;
use toml::de::DeValue;

use super::address::{NodeUrl, NonEmpty};
use super::error::{closest, quoted, shown};
use super::units::{self, Readable, Size};

/// A value and its place in the file.
pub(super) type Value<'v> = Spanned<DeValue<'v>>;

/// A typed value, or all mistakes in it.
pub(super) type Converted<T> = Result<T, Vec<ValueError>>;

/// A mistake in a value or in one item of a list, and the byte where it starts.
#[derive(Debug)]
pub(super) struct ValueError {
    pub(super) at: usize,
    pub(super) message: String,
}

/// An integer in a range; `why` is the reason for the bounds.
pub(super) fn integer<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
    why: &'static str,
) -> impl Fn(&Value<'_>) -> Converted<T> {
    move |value| {
        let written = value.get_ref().as_integer();
        let number = written.and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
        let number = number.filter(|number| range.contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .map_or_else(
                || {
                    let (low, high) = (range.start(), range.end());
                    mismatch(&format!("an integer from {low} to {high} ({why})"), value)
                },
                Ok,
            )
    }
}

/// A duration in a range; `why` is the reason for the bounds.
pub(super) fn duration(
    range: RangeInclusive<Duration>,
    why: &'static str,
) -> impl Fn(&Value<'_>) -> Converted<Duration> {
    let units = "(ms, s, m, h or d), such as \"8s\"";
    quantity("a duration", units, units::duration, Readable, range, why)
}

/// A size in a range; `why` is the reason for the bounds.
pub(super) fn size(
    range: RangeInclusive<Size>,
    why: &'static str,
) -> impl Fn(&Value<'_>) -> Converted<Size> {
    let units = "(B, KiB, MiB or GiB), such as \"64 KiB\"";
    quantity("a size", units, Size::parse, |size| size, range, why)
}

fn quantity<T: Copy + PartialOrd, S: Display>(
    noun: &'static str,
    units: &'static str,
    parse: fn(&str) -> Option<T>,
    show: fn(T) -> S,
    range: RangeInclusive<T>,
    why: &'static str,
) -> impl Fn(&Value<'_>) -> Converted<T> {
    move |value| match value.get_ref().as_str().and_then(parse) {
        None => mismatch(&format!("{noun} with its unit {units}"), value),
        Some(quantity) if range.contains(&quantity) => Ok(quantity),
        Some(_) => {
            let (low, high) = (show(*range.start()), show(*range.end()));
            mismatch(&format!("{noun} from {low} to {high} ({why})"), value)
        }
    }
}

pub(super) fn flag(value: &Value<'_>) -> Converted<bool> {
    value
        .get_ref()
        .as_bool()
        .map_or_else(|| mismatch("true or false", value), Ok)
}

/// This TOML literal and no other value; `why` is the reason.
pub(super) fn only(
    literal: &'static str,
    why: &'static str,
) -> impl Fn(&Value<'_>) -> Converted<()> {
    move |value| {
        if written(value.get_ref()) == literal {
            return Ok(());
        }
        mismatch(&format!("{literal} ({why})"), value)
    }
}

/// One word of a closed list.
pub(super) fn choice<T: Copy>(
    choices: &'static [(&'static str, T)],
) -> impl Fn(&Value<'_>) -> Converted<T> {
    move |value| {
        let word = value.get_ref().as_str();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == word) {
            return Ok(*choice);
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let one_of = format!("one of {}", names().collect::<Vec<_>>().join(", "));
        let near = word.and_then(|word| closest(word, names(), |name| name));
        let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
        refused(value, expected(&one_of, value) + &hint)
    }
}

/// A string that `parse` reads; its error is the reason, or empty when `form` says enough.
pub(super) fn text<T>(
    form: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&Value<'_>) -> Converted<T> {
    move |value| match value.get_ref().as_str().map(parse) {
        Some(Ok(parsed)) => Ok(parsed),
        Some(Err(why)) if !why.is_empty() => {
            refused(value, format!("{}: {why}", expected(form, value)))
        }
        _ => mismatch(form, value),
    }
}

/// A path, for [`text`].
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    optional_path(text)?.ok_or_else(|| "it is empty".to_owned())
}

/// A path or "", for [`text`].
pub(super) fn optional_path(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        "" => Ok(None),
        _ if text.contains('\0') => Err("a path contains no NUL".to_owned()),
        _ => Ok(Some(PathBuf::from(text))),
    }
}

/// A list of distinct items; a value that is not a list is a list of one. `why` is the reason for
/// the bounds on their number.
pub(super) fn list<T: PartialEq>(
    item: impl Fn(&Value<'_>) -> Converted<T>,
    count: RangeInclusive<usize>,
    why: &'static str,
) -> impl Fn(&Value<'_>) -> Converted<Vec<T>> {
    move |value| {
        let raw = match value.get_ref() {
            DeValue::Array(items) => items.as_ref(),
            _ => slice::from_ref(value),
        };
        let (mut items, mut errors) = (Vec::with_capacity(raw.len()), Vec::new());
        for one in raw {
            match item(one) {
                Ok(converted) if items.contains(&converted) => {
                    let twice = safely_written(one.get_ref());
                    let message = format!("expected each item once, found {twice} twice");
                    errors.push(ValueError {
                        at: one.span().start,
                        message,
                    });
                }
                Ok(converted) => items.push(converted),
                Err(mistakes) => errors.extend(mistakes),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if count.contains(&items.len()) {
            return Ok(items);
        }
        let bounds = match (*count.start(), *count.end()) {
            (0, high) => format!("at most {high} items"),
            (low, usize::MAX) => format!("at least {low} item"),
            (low, high) => format!("{low} to {high} items"),
        };
        refused(
            value,
            format!("expected {bounds} ({why}), found {}", items.len()),
        )
    }
}

/// A list that is not empty; the bounds of `list` must start at 1.
pub(super) fn non_empty<T>(
    list: impl Fn(&Value<'_>) -> Converted<Vec<T>>,
) -> impl Fn(&Value<'_>) -> Converted<NonEmpty<T>> {
    then(list, |items| {
        NonEmpty::new(items).ok_or_else(|| "the list is empty".to_owned())
    })
}

/// A second step on a converted value; its error is the whole message.
pub(super) fn then<T, U>(
    convert: impl Fn(&Value<'_>) -> Converted<T>,
    step: fn(T) -> Result<U, String>,
) -> impl Fn(&Value<'_>) -> Converted<U> {
    move |value| step(convert(value)?).or_else(|message| refused(value, message))
}

/// The URL of a node.
pub(super) fn node_url(value: &Value<'_>) -> Converted<NodeUrl> {
    url("a URL such as \"http://127.0.0.1:5050/rpc\"")(value)
}

/// A URL. Messages hide parts of it that may be a password or a key.
pub(super) fn url(form: &'static str) -> impl Fn(&Value<'_>) -> Converted<NodeUrl> {
    move |value| {
        let Some(text) = value.get_ref().as_str() else {
            return mismatch(form, value);
        };
        NodeUrl::parse(text).or_else(|why| {
            let found = quoted(&without_keys(text));
            refused(value, format!("expected {form}, found {found}: {why}"))
        })
    }
}

/// As [`written`], but without the parts of node URLs that may be a password or a key.
pub(super) fn safely_written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(items) => {
            let items = items.iter().map(|item| safely_written(item.get_ref()));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        DeValue::String(text)
            if text.contains("://")
                && !NodeUrl::parse(text).is_ok_and(|url| url.has_plain_path()) =>
        {
            format!("{:?}", without_keys(text))
        }
        other => written(other),
    }
}

/// The scheme and the host of a URL.
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
pub(super) fn method(value: &Value<'_>) -> Converted<Method> {
    let word = value.get_ref().as_str();
    if let Some(method) = word.and_then(Method::parse) {
        return Ok(method);
    }
    let names = || Method::ALL.into_iter().map(Method::name);
    let hint = match word.and_then(|word| closest(word, names(), without_prefix)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("they are {}", names().collect::<Vec<_>>().join(", ")),
    };
    refused(
        value,
        format!("{}; {hint}", expected("the name of a read method", value)),
    )
}

/// The name of an operation of the relay.
pub(super) fn operation(value: &Value<'_>) -> Converted<OperationKind> {
    let word = value.get_ref().as_str();
    if let Some(kind) = word.and_then(OperationKind::parse) {
        return Ok(kind);
    }
    let names = || OperationKind::ALL.into_iter().map(OperationKind::name);
    let hint = match word.and_then(|word| closest(word, names(), |name| name)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("they are {}", names().collect::<Vec<_>>().join(", ")),
    };
    refused(
        value,
        format!("{}; {hint}", expected("the name of an operation", value)),
    )
}

/// A method's name without the prefix that all of them share.
fn without_prefix(name: &str) -> &str {
    name.strip_prefix("starknet_").unwrap_or(name)
}

/// The error with the message "expected …, found …".
pub(super) fn mismatch<T>(form: &str, value: &Value<'_>) -> Converted<T> {
    refused(value, expected(form, value))
}

pub(super) fn refused<T>(value: &Value<'_>, message: String) -> Converted<T> {
    Err(vec![ValueError {
        at: value.span().start,
        message,
    }])
}

/// "expected …, found …".
pub(super) fn expected(form: &str, value: &Value<'_>) -> String {
    let found = match value.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => format!("the integer {}", shown(&number.to_string())),
        DeValue::Float(number) => format!("the float {}", shown(&number.to_string())),
        DeValue::Boolean(flag) => format!("the boolean {flag}"),
        DeValue::Datetime(time) => format!("the date {time}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("expected {form}, found {found}")
}

/// A value as one line of TOML.
pub(super) fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| written(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(members) => {
            let members = members
                .iter()
                .map(|(name, value)| format!("{} = {}", name.get_ref(), written(value.get_ref())));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
    }
}
