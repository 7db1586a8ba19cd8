//! The certificate that a server presents, seen by a handshake after which the connection ends.
//!
//! In: a server, and its authorities. Out: when its certificate is valid, also if it is refused:
//! an expired one is what an operator looks for. Nothing is sent after the handshake.

use crate::io::within;
use crate::secrets::trust;
use portcullis_filters::certificate::Validity;
use rustls::pki_types::ServerName;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use ureq::http::Uri;
use ureq::http::uri::Scheme;

/// The port of URLs without one.
const HTTPS: u16 = 443;
/// PostgreSQL's request for TLS, before the handshake:
/// <https://www.postgresql.org/docs/current/protocol-message-formats.html>, `SSLRequest`.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opening {
    /// With the handshake.
    Tls,
    /// With PostgreSQL's request for TLS.
    Postgres,
}

/// A server with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How a connection begins.
    pub opening: Opening,
    /// The file of its authorities; those of the system without one.
    pub ca_file: Option<PathBuf>,
}

impl Server {
    /// A server that expects the handshake first.
    pub fn tls(host: String, port: u16, ca_file: Option<&Path>) -> Self {
        Self {
            host,
            port,
            opening: Opening::Tls,
            ca_file: ca_file.map(Path::to_owned),
        }
    }

    /// A PostgreSQL server.
    pub fn postgres(host: String, port: u16, ca_file: Option<&Path>) -> Self {
        Self {
            opening: Opening::Postgres,
            ..Self::tls(host, port, ca_file)
        }
    }

    /// The server of an `https://` URL; `None` of another one.
    pub fn of_https(url: &str, ca_file: Option<&Path>) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return None;
        }
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        Some(Self::tls(host, uri.port_u16().unwrap_or(HTTPS), ca_file))
    }

    /// Connects, and returns when the certificate of the server is valid.
    ///
    /// # Errors
    /// Returns why the server showed no certificate within `timeout`.
    pub async fn certificate(&self, timeout: Duration) -> Result<Validity, String> {
        let (config, seen) =
            trust::observing(self.ca_file.as_deref()).map_err(|e| e.to_string())?;
        let name = ServerName::try_from(self.host.clone()).map_err(|e| e.to_string())?;
        let connect = async {
            let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            if self.opening == Opening::Postgres {
                request_tls(&mut stream).await?;
            }
            let connector = TlsConnector::from(Arc::new(config));
            connector.connect(name, stream).await.map(drop)
        };
        let connected = within(timeout, pin!(connect)).await;
        match (seen.validity(), connected) {
            (Some(validity), _) => Ok(validity),
            (None, None) => Err("no answer in time".to_owned()),
            (None, Some(Err(error))) => Err(error.to_string()),
            (None, Some(Ok(()))) => Err("the certificate is not X.509".to_owned()),
        }
    }
}

/// Asks PostgreSQL for TLS.
async fn request_tls(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&SSL_REQUEST).await?;
    match stream.read_u8().await? {
        b'S' => Ok(()),
        _ => Err(io::Error::other("PostgreSQL has no TLS")),
    }
}
