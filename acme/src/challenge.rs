//! The answers to the challenges of an order, in a form that instances can share.

use portcullis_edge::http::challenges::{ChallengeError, Pending};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answers to the challenges of one order.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Answers {
    /// The digests of key authorizations, by domain: RFC 8737, section 3.
    pub(super) tls: BTreeMap<String, Vec<u8>>,
    /// Key authorizations, by token: RFC 8555, section 8.3.
    pub(super) http: BTreeMap<String, String>,
}

impl Answers {
    /// Converts the answers for the listeners that serve them.
    pub(super) fn pending(&self) -> Result<Pending, ChallengeError> {
        let mut pending = Pending::default();
        for (domain, digest) in &self.tls {
            pending.add_tls(domain, digest)?;
        }
        for (token, key_authorization) in &self.http {
            pending.add_http(token, key_authorization);
        }
        Ok(pending)
    }
}
