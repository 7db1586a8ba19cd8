//! The relay on the wire: what it lets through, and everything that it does not.
//!
//! `stage` starts a relay with all that is around it. The node is played by `chain`, which can fail
//! in every way, or is a real one (`devnet`: starknet-devnet 0.10.1 on PATH, one for all tests)
//! with a proxy before it, so that a test sees what reached it. `user` signs as a wallet does,
//! `expect` knows what every answer must be. The numbered rows in `threats_*` and `signatures` are
//! the tricks that a node falls for, or that a careless filter lets through; each test shows that
//! the trick alone was refused: what it was made of passes. Reads are judged in `refusals`.

mod unsettled;

mod arguments;
mod bearer;
mod commands;
mod http;
mod journal;
mod operations;
mod outcome;
mod pins;
mod reload;
mod secured;
mod signatures;
mod start;
mod threats_calls;
mod threats_fields;
mod threats_text;
mod walk;
