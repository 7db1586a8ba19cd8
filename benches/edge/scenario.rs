//! The requests, the programs that serve them, the number of connections, and the expected
//! responses.

use crate::answers::CLASS_SIZE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// With the cache and single-flight.
    Usual,
    /// Without the cache and single-flight.
    Plain,
    /// With a limit that every client exceeds after its first request.
    Limited,
}

/// The requests that clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// A different request each time, never cacheable.
    Distinct,
    /// A different request each time, cacheable.
    DistinctCached,
    /// A different class each time, not cacheable because it is requested by address.
    DistinctLarge,
    /// One request repeated, cacheable.
    Same,
    /// One class repeated, cacheable.
    SameLarge,
    /// Nine cacheable requests, then one that is not.
    NineOfTen,
    /// One request repeated, never cacheable.
    SameNow,
    /// A write, which is refused.
    Write,
}

/// The number of the transaction that all clients request; no request has this number.
const FAMOUS: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) asks: Asks,
    pub(crate) program: Program,
    pub(crate) connections: usize,
}

const fn case(name: &'static str, asks: Asks, program: Program, connections: usize) -> Case {
    Case {
        name,
        asks,
        program,
        connections,
    }
}

/// The table, in measurement order.
pub(crate) const CASES: &[Case] = &[
    case("miss", Asks::Distinct, Program::Usual, 64),
    case("miss, one client", Asks::Distinct, Program::Usual, 1),
    case(
        "miss, then cached",
        Asks::DistinctCached,
        Program::Usual,
        64,
    ),
    case(
        "miss, no cache or single-flight",
        Asks::Distinct,
        Program::Plain,
        64,
    ),
    case("miss of 256 KiB", Asks::DistinctLarge, Program::Usual, 64),
    case("hit", Asks::Same, Program::Usual, 64),
    case("hit, one client", Asks::Same, Program::Usual, 1),
    case("hit of 256 KiB", Asks::SameLarge, Program::Usual, 64),
    case("hit, 90 %", Asks::NineOfTen, Program::Usual, 64),
    case("shared", Asks::SameNow, Program::Usual, 64),
    case("refused, 403", Asks::Write, Program::Usual, 64),
    case("rate-limited, 429", Asks::Distinct, Program::Limited, 64),
];

/// The expected response.
pub(crate) struct Expected {
    pub(crate) status: u16,
    /// Allowed values of `X-Cache`; the header must be absent if empty.
    pub(crate) cache: &'static [&'static str],
    /// Whether the response carries the request's id; a request refused by its head has no id.
    pub(crate) has_id: bool,
    /// The minimum body length.
    pub(crate) length: usize,
}

impl Case {
    /// The method and parameters of request `number`.
    pub(crate) fn call(&self, number: u64) -> (&'static str, String) {
        let nonce = || {
            let params = format!(r#"{{"block_id":"latest","contract_address":"{number:#x}"}}"#);
            ("starknet_getNonce", params)
        };
        let receipt = |hash: u64| {
            (
                "starknet_getTransactionReceipt",
                format!(r#"{{"transaction_hash":"{hash:#x}"}}"#),
            )
        };
        match self.asks {
            Asks::Distinct => nonce(),
            Asks::NineOfTen if is_distinct(number) => nonce(),
            Asks::DistinctCached => receipt(number),
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
                (
                    "starknet_call",
                    format!(r#"{{"request":{request},"block_id":"latest"}}"#),
                )
            }
            Asks::Write => (
                "starknet_addInvokeTransaction",
                r#"{"invoke_transaction":{}}"#.into(),
            ),
        }
    }

    /// The program's expected response to request `number`.
    pub(crate) fn expected(&self, number: u64) -> Expected {
        let passes = |cache| Expected {
            status: 200,
            cache,
            has_id: true,
            length: self.length(),
        };
        let refused = |status| Expected {
            status,
            cache: &[],
            has_id: status == 403,
            length: 0,
        };
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

    /// The expected response to a forwarded request.
    pub(crate) fn expected_bare(&self) -> Expected {
        Expected {
            status: 200,
            cache: &[],
            has_id: true,
            length: self.length(),
        }
    }

    fn length(&self) -> usize {
        match self.asks {
            Asks::DistinctLarge | Asks::SameLarge => CLASS_SIZE,
            _ => 0,
        }
    }
}

/// True for every tenth request.
fn is_distinct(number: u64) -> bool {
    number.is_multiple_of(10)
}
