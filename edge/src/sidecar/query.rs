//! The parameters of a call: `application/x-www-form-urlencoded`, as URLs carry them.
//!
//! Unknown parameters are ignored, as XRPC requires. A known one appears once, and an empty value
//! counts as absent.

use super::{Refused, refused};
use portcullis_filters::verdict::Reason;
use std::borrow::Cow;

/// Parameters in order of appearance.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the text after the `?`.
    pub(super) fn parse(raw: &[u8]) -> Self {
        Self(form_urlencoded::parse(raw).into_owned().collect())
    }

    /// Every value of a parameter.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, unless it is empty.
    ///
    /// # Errors
    /// Fails if the parameter appears twice.
    pub(super) fn one(&self, name: &str) -> Result<Option<&str>, Refused> {
        let mut values = self.all(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(invalid(format!("{name} appears twice")));
        }
        Ok(value.filter(|value| !value.is_empty()))
    }
}

/// The refusal of a parameter.
pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Refused {
    refused(Reason::InvalidRequest, message)
}
