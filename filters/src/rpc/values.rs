//! The values that parameters are made of: felts and lists of them, read strictly and written in
//! one form, and what to say of one that does not fit.

use super::json::Json;
use crate::felt::Felt;
use alloc::vec::Vec;

/// What is wrong with the parameters: the parameter, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Where: a parameter's name, or empty for the parameters as a whole.
    pub name: &'static str,
    /// What is accepted.
    pub expected: &'static str,
}

pub(crate) const fn misfit(name: &'static str, expected: &'static str) -> Misfit {
    Misfit { name, expected }
}

/// What a felt looks like, for whoever sent something else.
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

/// Appends a number in decimal digits, without a string in between.
pub(crate) fn write_integer(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a string that needs no escape.
pub(crate) fn write_plain(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}
