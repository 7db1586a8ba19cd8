//! TLS between a client and the gate.

use super::challenges::Pending;
use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, Ssl, Stream, UniqueID,
    UniqueIDType,
};
use pingora::protocols::{SocketDigest, TimingDigest};
use portcullis_base::io::within;
use portcullis_base::telemetry::Handshake;
use rustls::server::Acceptor;
use rustls::{Error, InvalidMessage, ServerConfig};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// A client's stream inside TLS, as a Pingora stream.
pub(super) struct Secured(Box<TlsStream<Stream>>);

impl Secured {
    /// Performs the handshake within `timeout`.
    ///
    /// # Errors
    /// Returns the outcome of the failed handshake for the metrics, and the error for the log.
    pub(super) async fn accept(
        stream: Stream,
        config: Arc<ServerConfig>,
        timeout: Duration,
    ) -> Result<Self, (Handshake, io::Error)> {
        Self::completed(TlsAcceptor::from(config).accept(stream), timeout).await
    }

    /// Accepts a client while challenges are pending. Answers a challenge; any other client is
    /// served by `config`, or refused without one.
    ///
    /// # Errors
    /// Returns the errors of [`Self::accept`].
    pub(super) async fn accept_challenged(
        stream: Stream,
        config: Option<Arc<ServerConfig>>,
        pending: &Pending,
        timeout: Duration,
    ) -> Result<Self, (Handshake, io::Error)> {
        let handshake = async {
            let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            let config = pending.answer(&start.client_hello()).or(config);
            let config = config
                .ok_or(Error::NoCertificatesPresented)
                .map_err(io::Error::other)?;
            start.into_stream(config).await
        };
        Self::completed(handshake, timeout).await
    }

    async fn completed(
        handshake: impl Future<Output = io::Result<TlsStream<Stream>>>,
        timeout: Duration,
    ) -> Result<Self, (Handshake, io::Error)> {
        match within(timeout, pin!(handshake)).await {
            Some(Ok(stream)) => Ok(Self(Box::new(stream))),
            Some(Err(error)) => Err((outcome(&error), error)),
            None => Err((Handshake::Timeout, ErrorKind::TimedOut.into())),
        }
    }

    /// The protocol that was negotiated, if the client offered any.
    pub(super) fn protocol(&self) -> Option<&[u8]> {
        self.0.get_ref().1.alpn_protocol()
    }
}

/// Classifies a failed handshake.
fn outcome(error: &io::Error) -> Handshake {
    let why = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match why {
        None if error.kind() == ErrorKind::InvalidData => Handshake::Broken,
        None => Handshake::Gone,
        Some(Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        )) => Handshake::NotTls,
        Some(
            Error::PeerIncompatible(_)
            | Error::NoApplicationProtocol
            | Error::NoCertificatesPresented,
        ) => Handshake::Incompatible,
        Some(Error::AlertReceived(_)) => Handshake::Refused,
        Some(_) => Handshake::Broken,
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Secured {
    async fn shutdown(&mut self) {
        // a client that is gone needs no close_notify
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // without the session and its keys
        f.write_str("Secured")
    }
}

impl UniqueID for Secured {
    fn id(&self) -> UniqueIDType {
        self.0.get_ref().0.id()
    }
}

impl GetSocketDigest for Secured {
    /// The digest of the socket, which shows what the client's TCP acknowledged.
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.0.get_ref().0.get_socket_digest()
    }
}

// required by Pingora's streams and not used: the gate reads the peer from the TCP stream

impl Ssl for Secured {}

impl GetTimingDigest for Secured {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Secured {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl Peek for Secured {}
