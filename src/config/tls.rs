//! `[<surface>.tls]`: the same three keys for each listener.

use super::file::Reader;
use super::relay::path;
use super::values::{flag, text};
use std::path::PathBuf;

/// What a listener secures its connections with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate and those that signed it, in PEM, the listener's own first.
    pub certificate_file: PathBuf,
    /// Its private key, in PEM.
    pub key_file: PathBuf,
    /// Whether clients may choose HTTP/2.
    pub http2: bool,
}

/// A section and the paths of its three keys.
pub(super) struct Paths(pub(super) [&'static str; 4]);

/// The paths of one surface.
macro_rules! tls_paths {
    ($surface:literal) => {
        $crate::config::tls::Paths([
            concat!($surface, ".tls"),
            concat!($surface, ".tls.certificate_file"),
            concat!($surface, ".tls.key_file"),
            concat!($surface, ".tls.http2"),
        ])
    };
}
pub(super) use tls_paths;

/// Reads the three keys, if the section is there: without it the listener speaks in the clear.
pub(super) fn tls(reader: &mut Reader<'_>, Paths(paths): Paths) -> Option<TlsConfig> {
    let [section, certificate_file, key_file, http2] = paths;
    reader.has(section).then(|| TlsConfig {
        certificate_file: reader.take(certificate_file, text("a path", path)),
        key_file: reader.take(key_file, text("a path", path)),
        http2: reader.take(http2, flag),
    })
}
