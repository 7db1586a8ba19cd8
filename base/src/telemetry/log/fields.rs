//! The fields of a log record, in both formats.

use crate::config::LogFormat;
use ::log::kv::{Error, Key, Value, VisitSource};
use std::io::{self, Write as _};

/// Writes the fields of a record after its message.
pub(in crate::telemetry) struct Fields<'a> {
    pub(in crate::telemetry) out: &'a mut Vec<u8>,
    pub(in crate::telemetry) format: LogFormat,
}

impl<'kvs> VisitSource<'kvs> for Fields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        match self.format {
            LogFormat::Json => {
                write!(self.out, r#","{key}":"#)?;
                json_string(self.out, &value.to_string())?;
            }
            LogFormat::Text => write!(self.out, " {key}={value}")?,
        }
        Ok(())
    }
}

pub(super) fn json_string(out: &mut Vec<u8>, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(out, text)?)
}
