//! What is asked, of which program, over how many connections, and what must come back.

use crate::answers::CLASS_SIZE;

/// How the program is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// With the cache and single-flight.
    Usual,
    /// With neither.
    Plain,
    /// With a limit that every client is over after its first request.
    Limited,
}

/// What the clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Each time for something else, which is never kept.
    Distinct,
    /// Each time for something else, which is kept.
    DistinctKept,
    /// Each time for another class, which is not kept, because it is asked for by its address.
    DistinctLarge,
    /// Always for the same, which is kept.
    Same,
    /// Always for the same class, which is kept.
    SameLarge,
    /// Nine times for what is kept, once for what is not.
    NineOfTen,
    /// Always for the same, which is never kept.
    SameNow,
    /// A write, which is not let through.
    Write,
}

/// A transaction that everybody asks for: no request has this number.
const FAMOUS: u64 = u64::MAX;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) asks: Asks,
    pub(crate) program: Program,
    pub(crate) connections: usize,
}

const fn case(name: &'static str, asks: Asks, program: Program, connections: usize) -> Case {
    Case { name, asks, program, connections }
}

/// The table, in the order in which it is measured.
pub(crate) const CASES: &[Case] = &[
    case("miss", Asks::Distinct, Program::Usual, 64),
    case("miss, one client", Asks::Distinct, Program::Usual, 1),
    case("miss, then kept", Asks::DistinctKept, Program::Usual, 64),
    case("miss, no cache or single-flight", Asks::Distinct, Program::Plain, 64),
    case("miss of 256 KiB", Asks::DistinctLarge, Program::Usual, 64),
    case("hit", Asks::Same, Program::Usual, 64),
    case("hit, one client", Asks::Same, Program::Usual, 1),
    case("hit of 256 KiB", Asks::SameLarge, Program::Usual, 64),
    case("hit, 90 %", Asks::NineOfTen, Program::Usual, 64),
    case("shared", Asks::SameNow, Program::Usual, 64),
    case("refused, 403", Asks::Write, Program::Usual, 64),
    case("rate-limited, 429", Asks::Distinct, Program::Limited, 64),
];

/// What an answer must be.
pub(crate) struct Expected {
    /// Its status.
    pub(crate) status: u16,
    /// What `X-Cache` may say; nothing when it must be absent.
    pub(crate) cache: &'static [&'static str],
    /// Whether it repeats the request's id: what is refused by its head does not.
    pub(crate) has_id: bool,
    /// The least its body is long.
    pub(crate) length: usize,
}

impl Case {
    /// Method and parameters of request `number`.
    pub(crate) fn call(&self, number: u64) -> (&'static str, String) {
        let nonce = || {
            let params = format!(r#"{{"block_id":"latest","contract_address":"{number:#x}"}}"#);
            ("starknet_getNonce", params)
        };
        let receipt = |hash: u64| {
            ("starknet_getTransactionReceipt", format!(r#"{{"transaction_hash":"{hash:#x}"}}"#))
        };
        match self.asks {
            Asks::Distinct => nonce(),
            Asks::NineOfTen if is_distinct(number) => nonce(),
            Asks::DistinctKept => receipt(number),
            Asks::Same | Asks::NineOfTen => receipt(FAMOUS),
            Asks::DistinctLarge => {
                let params = format!(r#"{{"block_id":"latest","contract_address":"{number:#x}"}}"#);
                ("starknet_getClassAt", params)
            }
            Asks::SameLarge => {
                let params = r#"{"block_id":"latest","class_hash":"0xc1a55"}"#;
                ("starknet_getClass", params.into())
            }
            Asks::SameNow => {
                let request = r#"{"contract_address":"0x4718","entry_point_selector":"0x35a7","calldata":[]}"#;
                ("starknet_call", format!(r#"{{"request":{request},"block_id":"latest"}}"#))
            }
            Asks::Write => ("starknet_addInvokeTransaction", r#"{"invoke_transaction":{}}"#.into()),
        }
    }

    /// What the program must answer to request `number`.
    pub(crate) fn expected(&self, number: u64) -> Expected {
        let passes = |cache| Expected { status: 200, cache, has_id: true, length: self.length() };
        let refused = |status| Expected { status, cache: &[], has_id: status == 403, length: 0 };
        match (self.program, self.asks) {
            (Program::Limited, _) => refused(429),
            (_, Asks::Write) => refused(403),
            (Program::Plain, _) => passes(&[]),
            (Program::Usual, Asks::SameNow) => passes(&["shared", "miss"]),
            (Program::Usual, Asks::Same | Asks::SameLarge) => passes(&["hit"]),
            (Program::Usual, Asks::NineOfTen) if !is_distinct(number) => passes(&["hit"]),
            (Program::Usual, _) => passes(&["miss"]),
        }
    }

    /// What must come of a request that is passed on and nothing else.
    pub(crate) fn expected_bare(&self) -> Expected {
        Expected { status: 200, cache: &[], has_id: true, length: self.length() }
    }

    fn length(&self) -> usize {
        match self.asks {
            Asks::DistinctLarge | Asks::SameLarge => CLASS_SIZE,
            _ => 0,
        }
    }
}

/// Every tenth one.
fn is_distinct(number: u64) -> bool {
    number.is_multiple_of(10)
}
