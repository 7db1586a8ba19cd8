//! The surfaces of the program, as metrics and log lines name them.

use portcullis_filters::named;

named! {
    /// A surface of the program.
    pub enum Surface {
        /// The public read path.
        Gateway = "gateway",
        /// The operator's listener.
        Admin = "admin",
        /// The protected write path.
        Relay = "relay",
        /// The service endpoints.
        Sidecar = "sidecar",
        /// The challenges of ACME over HTTP, and redirects.
        Acme = "acme",
    }
}

impl Surface {
    /// The configuration key of its listener.
    pub fn listen_key(self) -> String {
        match self {
            Self::Acme => "tls.acme.http_address".to_owned(),
            surface => format!("{}.listen", surface.name()),
        }
    }
}

/// A value for each surface.
pub type BySurface<T> = [T; Surface::ALL.len()];
