//! Certificates for tests, and clients that trust them.
//!
//! In: a folder for the files. Out: the keys of a configuration, and TLS connections: whole
//! handshakes to inspect, or a socket whose bytes go through one, for [`Client`]s and HTTP/2.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, ServerConfig};
use rustls::{SupportedProtocolVersion, version};
use tokio::io::copy_bidirectional;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::client::{Client, PATIENCE};
use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::forward::listen;

/// The host name of every certificate here.
pub(crate) const NAME: &str = "edge.test";

/// All supported versions.
pub(crate) const ANY: &[&SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    der: CertificateDer<'static>,
}

impl Pair {
    /// A certificate that is valid until 4096.
    pub(crate) fn new() -> Self {
        Self::until(4096)
    }

    /// A certificate that expires in the first second of this year.
    pub(crate) fn until(year: i32) -> Self {
        Self::with(NAME, |params| params.not_after = date_time_ymd(year, 1, 1))
    }

    /// A certificate for this host, valid until 4096 unless `change` says otherwise.
    pub(crate) fn with(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().expect("there is randomness");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(1975, 1, 1);
        params.not_after = date_time_ymd(4096, 1, 1);
        change(&mut params);
        let certificate = params.self_signed(&key).expect("the key can sign");
        Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
        }
    }

    /// Writes or replaces both files.
    pub(crate) fn write(&self, folder: &Folder) {
        folder.secret("edge.pem", &self.certificate);
        folder.secret("edge.key", &self.key);
    }

    /// A client configuration that trusts this certificate only, with these versions and protocols.
    pub(crate) fn config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&str],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("a certificate");
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder
            .with_protocol_versions(versions)
            .expect("versions with ciphers");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Arc::new(config)
    }

    /// An HTTP/1.1 client over TLS.
    pub(crate) fn client(&self, address: SocketAddr) -> Client {
        Client::over(tunnel(address, self.config(ANY, &["http/1.1"])))
    }
}

/// A TLS server with this certificate in front of a node: the address of its listener.
pub(crate) fn secured_node(node: SocketAddr, pair: &Pair) -> SocketAddr {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder
        .with_protocol_versions(ANY)
        .expect("versions with ciphers");
    let config = builder
        .with_no_client_auth()
        .with_single_cert(vec![pair.der.clone()], key);
    let mut config = config.expect("the key is the certificate's");
    // a client that offered h2 would be served it
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listen(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            // the other side reports what it dislikes
            let Ok(mut inside) = acceptor.accept(stream).await else {
                return;
            };
            let Ok(mut node) = tokio::net::TcpStream::connect(node).await else {
                return;
            };
            let _ended = copy_bidirectional(&mut inside, &mut node).await;
        }
    })
}

/// Configures a listener with the certificate that [`Pair::write`] wrote.
pub(crate) fn secured(setup: Setup, surface: &str, folder: &Folder) -> Setup {
    let quoted = |name| format!("\"{}\"", folder.file(name));
    setup
        .set(
            &format!("{surface}.tls.certificate_file"),
            &quoted("edge.pem"),
        )
        .set(&format!("{surface}.tls.key_file"), &quoted("edge.key"))
}

/// The negotiated version and protocol.
pub(crate) type Agreed = (ProtocolVersion, Option<String>);

/// Completes a handshake, including the server's part.
pub(crate) fn handshake(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<Agreed> {
    let name = ServerName::try_from(NAME).expect("a name");
    let mut session = ClientConnection::new(config, name).expect("a name that is one");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    session.complete_io(&mut stream)?;
    let protocol = session
        .alpn_protocol()
        .map(|name| String::from_utf8_lossy(name).into_owned());
    let version = session.protocol_version().expect("the handshake is done");
    Ok((version, protocol))
}

/// A socket whose bytes go through TLS to `address`.
pub(crate) fn tunnel(address: SocketAddr, config: Arc<ClientConfig>) -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let near = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (far, _) = listener.accept().expect("somebody connected");
    let outside = TcpStream::connect(address).expect("the edge listens");
    for stream in [&far, &outside] {
        stream.set_nonblocking(true).expect("it is open");
        stream.set_nodelay(true).expect("it is open");
    }
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let mut far = tokio::net::TcpStream::from_std(far).expect("a socket");
            let outside = tokio::net::TcpStream::from_std(outside).expect("a socket");
            let name = ServerName::try_from(NAME).expect("a name");
            let shaken = TlsConnector::from(config).connect(name, outside);
            // the reader of the socket sees how the connection ends
            if let Ok(Ok(mut inside)) = tokio::time::timeout(PATIENCE, shaken).await {
                let _ended = copy_bidirectional(&mut far, &mut inside).await;
            }
        });
    });
    near
}

/// The measured range of a one-second deadline on a busy machine.
pub(crate) const ABOUT_A_SECOND: std::ops::Range<Duration> =
    Duration::from_millis(800)..Duration::from_secs(6);
