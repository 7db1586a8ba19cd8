//! Wire tests of the relay: what it admits, and everything it refuses.
//!
//! The harness is `support::relay`: `stage` starts a relay with its environment. The node is either
//! `chain`, which can fail in every way, or a real one (`devnet`: starknet-devnet 0.10.1 on PATH,
//! shared by all tests) behind a recording proxy. `user` signs like a wallet. `threats_*` and
//! `signatures` hold attacks that a node accepts or that a careless filter passes; each test proves
//! that the attack alone is refused: the transaction it was derived from passes.

mod unsettled;

mod archive;
mod arguments;
mod bearer;
mod behind;
mod budgets;
mod commands;
mod contested;
mod durable;
mod events;
mod failing;
mod http;
mod joined;
mod journal;
mod memory;
mod operations;
mod outcome;
mod pins;
mod recovery;
mod refused;
mod reload;
mod rollbacks;
mod secured;
mod shared;
mod signatures;
mod start;
mod switched_off;
mod threats_calls;
mod threats_fields;
mod threats_text;
mod walk;
