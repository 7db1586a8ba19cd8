//! The running program: [`process`] starts, reloads and stops it, [`admin`] shows it to its
//! operator, [`command`] is what its commands have in common.

pub mod admin;
pub mod command;
pub mod process;

/// The version, and the commit of a release build in parentheses.
pub const VERSION: &str = env!("PORTCULLIS_VERSION");
/// The commit that a release build is made of; empty if it is not known.
pub const REVISION: &str = env!("PORTCULLIS_REVISION");
