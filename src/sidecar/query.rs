//! The parameters of a call: `application/x-www-form-urlencoded`, as URLs carry them.
//!
//! Parameters that a function does not know are ignored, as XRPC asks; one that it knows is there
//! once, and empty means that it is not.

use super::{Refused, refused};
use portcullis_filters::verdict::Reason;

/// The parameters that were given, in order.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows the `?`.
    pub(super) fn parse(raw: &[u8]) -> Self {
        Self(form_urlencoded::parse(raw).into_owned().collect())
    }

    /// Every value of a parameter.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let given = self.0.iter().filter(move |(given, _)| given == name);
        given.map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, if it is not empty.
    ///
    /// # Errors
    /// It is there twice.
    pub(super) fn one(&self, name: &str) -> Result<Option<&str>, Refused> {
        let mut values = self.all(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(invalid(format!("{name} is there twice")));
        }
        Ok(value.filter(|value| !value.is_empty()))
    }
}

/// A parameter that is not what it must be.
pub(super) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Refused {
    refused(Reason::InvalidRequest, message)
}
