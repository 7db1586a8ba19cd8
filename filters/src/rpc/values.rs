//! The values of parameters: felts and lists of them, parsed strictly and written in one form, and
//! the error of a parameter.

use super::json::Json;
use crate::felt::Felt;
use alloc::vec::Vec;
use core::fmt;

/// Why the parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// By position, this is more than the method takes.
    TooMany(usize),
    /// There is one by name that the method does not take.
    Unknown,
    /// This one appears twice.
    Duplicate(&'static str),
    /// This one is required.
    Missing(&'static str),
    /// This one, or a member of it, must be something else.
    Malformed(&'static str, &'static str),
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(given) => write!(f, "{given} parameters are too many"),
            Self::Unknown => f.write_str("there is an unknown parameter"),
            Self::Duplicate(name) => write!(f, "{name} appears twice"),
            Self::Missing(name) => write!(f, "{name} is required"),
            Self::Malformed(name, expected) => write!(f, "{name} must be {expected}"),
        }
    }
}

/// The form of a felt, for the refusal of anything else.
pub(crate) const FELT: &str = "0x and 1 to 64 hexadecimal digits, below the Stark prime";

pub(crate) fn felt(value: &Json<'_>) -> Option<Felt> {
    Felt::parse(value.as_str()?)
}

pub(crate) fn felts(value: &Json<'_>) -> Option<Vec<Felt>> {
    let Json::Array(items) = value else { return None };
    // collecting options would not know the length, and grow the list step by step
    let mut felts = Vec::with_capacity(items.len());
    for item in items {
        felts.push(felt(item)?);
    }
    Some(felts)
}

pub(crate) fn write_felt(felt: &Felt, out: &mut Vec<u8>) {
    out.push(b'"');
    felt.write(out);
    out.push(b'"');
}

pub(crate) fn write_felts(felts: &[Felt], out: &mut Vec<u8>) {
    write_list(felts, out, write_felt);
}

pub(crate) fn write_list<T>(items: &[T], out: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Appends a number in decimal digits, without an allocation.
pub(crate) fn write_integer(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a string that needs no escape.
pub(crate) fn write_plain(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}
