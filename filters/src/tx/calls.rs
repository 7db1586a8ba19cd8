//! The calls in an account's calldata: Cairo 1's `Array<Call>`.
//!
//! `[n, (to, selector, length, args…) * n]`, with no felt left over. Accounts of Cairo 0 use
//! another form, in which arguments may overlap: their class is not permitted, and their form is
//! not read.

use super::cursor::Cursor;
use crate::felt::Felt;
use alloc::vec::Vec;

/// One call of a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The contract.
    pub to: Felt,
    /// The entrypoint.
    pub selector: Felt,
    /// Its arguments.
    pub args: Vec<Felt>,
}

/// Why calldata is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalldataError {
    /// The calldata announces more calls than allowed.
    TooManyCalls,
    /// The calldata is not exactly one list of one or more calls.
    Malformed,
}

/// Decodes 1 to `max_calls` calls; no felt may be left over.
pub(crate) fn decode(calldata: &[Felt], max_calls: usize) -> Result<Vec<Call>, CalldataError> {
    let mut cursor = Cursor::new(calldata);
    let count = cursor.take().ok_or(CalldataError::Malformed)?;
    let count = count.to_u64().and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|count| *count <= max_calls)
        .ok_or(CalldataError::TooManyCalls)?;
    let calls: Option<Vec<Call>> = (0..count).map(|_| call(&mut cursor)).collect();
    calls
        .filter(|calls| !calls.is_empty() && cursor.finish().is_some())
        .ok_or(CalldataError::Malformed)
}

fn call(cursor: &mut Cursor<'_>) -> Option<Call> {
    let [to, selector, length] = [cursor.take()?, cursor.take()?, cursor.take()?];
    Some(Call {
        to,
        selector,
        args: cursor.sub(length)?.to_vec(),
    })
}

/// The calldata of these calls.
pub(crate) fn encode(calls: &[Call]) -> Vec<Felt> {
    let length = |length: usize| Felt::from(u64::try_from(length).unwrap_or(u64::MAX));
    let mut calldata = Vec::new();
    calldata.push(length(calls.len()));
    for call in calls {
        calldata.extend([call.to, call.selector, length(call.args.len())]);
        calldata.extend_from_slice(&call.args);
    }
    calldata
}

#[cfg(test)]
mod tests {
    use super::CalldataError::{Malformed, TooManyCalls};
    use super::*;
    use proptest::prelude::*;

    fn felts(numbers: &[u64]) -> Vec<Felt> {
        numbers.iter().copied().map(Felt::from).collect()
    }

    #[test]
    fn calldata_is_exactly_one_list_of_calls() {
        for (what, numbers, expected) in [
            ("one call", &[1, 7, 8, 2, 5, 6][..], Ok(1)),
            ("two calls", &[2, 7, 8, 0, 7, 8, 1, 5], Ok(2)),
            ("nothing", &[], Err(Malformed)),
            ("no calls", &[0], Err(Malformed)),
            ("a trailing felt", &[1, 7, 8, 0, 0], Err(Malformed)),
            ("two announced, one there", &[2, 7, 8, 0], Err(Malformed)),
            (
                "more arguments announced than there",
                &[1, 7, 8, 2, 5],
                Err(Malformed),
            ),
            ("a head cut short", &[1, 7, 8], Err(Malformed)),
            (
                "a length without end",
                &[1, 7, 8, u64::MAX, 5],
                Err(Malformed),
            ),
            (
                "a call too many",
                &[3, 7, 8, 0, 7, 8, 0, 7, 8, 0],
                Err(TooManyCalls),
            ),
            ("calls without end", &[1 << 32, 7, 8, 0], Err(TooManyCalls)),
            ("Cairo 0's form", &[1, 7, 8, 0, 2, 2, 5, 6], Err(Malformed)),
        ] {
            let calls = decode(&felts(numbers), 2).map(|calls| calls.len());
            assert_eq!(calls, expected, "{what}");
        }
        let wide = Felt::from(1_u128 << 64);
        assert_eq!(
            decode(&[wide], 2),
            Err(TooManyCalls),
            "a count of more than 64 bits"
        );
        let mut calldata = felts(&[1, 7, 8]);
        calldata.push(wide);
        assert_eq!(
            decode(&calldata, 2),
            Err(Malformed),
            "a length of more than 64 bits"
        );
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_are_inverse(
            calls in prop::collection::vec(any::<(u128, u128, Vec<u64>)>(), 1..8),
            noise in prop::collection::vec(0_u64..6, 0..24),
        ) {
            let calls: Vec<_> = calls.into_iter().map(|(to, selector, args)| Call {
                to: Felt::from(to), selector: Felt::from(selector), args: felts(&args),
            }).collect();
            prop_assert_eq!(decode(&encode(&calls), 8), Ok(calls));
            let noise = felts(&noise);
            if let Ok(calls) = decode(&noise, 8) {
                prop_assert_eq!(encode(&calls), noise);
            }
        }
    }
}
