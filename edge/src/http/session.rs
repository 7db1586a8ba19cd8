//! A request as Pingora's `HttpProxy` takes it: the one file that knows Pingora's custom session.
//!
//! The trait is `#[doc(hidden)]` in Pingora 0.9.1, which is pinned. `HttpProxy` needs the head and
//! runs the phases; the rest of the request waits in a [`Handoff`], which the head names in its
//! extensions, because a `dyn Session` cannot be downcast. The handler takes the request out and
//! puts it back, so that the connection can continue. Pingora itself neither reads nor writes.

use super::request::Request;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::{Error, ErrorType, Result};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

type MessageReader = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

/// Passes a request from its connection to the phases of the proxy and back. Cheap to clone.
#[derive(Clone, Default)]
pub struct Handoff(Arc<Mutex<Passed>>);

#[derive(Default)]
struct Passed {
    request: Option<Request>,
    header: Option<Box<RequestHeader>>,
}

impl Handoff {
    /// The handoff of the request with this head.
    pub fn of(header: &RequestHeader) -> Option<Self> {
        header.extensions.get::<Self>().cloned()
    }

    /// Takes the request, to answer it.
    ///
    /// # Errors
    /// Returns an error if the request was taken before.
    pub fn take(&self) -> Result<Request> {
        let request = self.passed().request.take();
        request.ok_or_else(|| Error::explain(ErrorType::InternalError, "no request to answer"))
    }

    /// Puts an answered request back. Without that its connection closes.
    pub fn put(&self, request: Request) {
        self.passed().request = Some(request);
    }

    /// A session for Pingora that lends `request`, which has this head.
    pub(super) fn lend(&self, request: Request, mut header: Box<RequestHeader>) -> ServerSession {
        // a cached head names its handoff already
        if header.extensions.get::<Self>().is_none() {
            header.extensions_mut().insert(self.clone());
        }
        self.put(request);
        ServerSession::new_custom(Box::new(LentSession {
            header: Some(header),
            handoff: self.clone(),
        }))
    }

    /// Takes back the request, if it is answered, and its head.
    pub(super) fn take_back(&self) -> (Option<Request>, Option<Box<RequestHeader>>) {
        let mut passed = self.passed();
        (passed.request.take(), passed.header.take())
    }

    fn passed(&self) -> MutexGuard<'_, Passed> {
        self.0.lock()
    }
}

/// The session: a head, until Pingora has finished with it.
struct LentSession {
    header: Option<Box<RequestHeader>>,
    handoff: Handoff,
}

fn not_for_pingora<T>() -> Result<T> {
    Error::e_explain(
        ErrorType::InternalError,
        "the request filter reads and writes",
    )
}

#[async_trait]
impl Session for LentSession {
    fn req_header(&self) -> &RequestHeader {
        self.header
            .as_ref()
            .expect("the head is there until the session is finished")
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.header
            .as_mut()
            .expect("the head is there until the session is finished")
    }

    // as `async_trait` would write it; a box of a future without fields needs no allocation
    fn finish<'s, 'f>(&'s mut self) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
    {
        self.handoff.passed().header = self.header.take();
        Box::pin(poll_fn(|_| Poll::Ready(Ok(()))))
    }

    async fn shutdown(&mut self, _: u32, _: &str) {
        drop(self.handoff.take());
    }

    fn request_summary(&self) -> String {
        // without anything that the client sent
        String::from("a request")
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        not_for_pingora()
    }

    async fn read_body_or_idle(&mut self, _: bool) -> Result<Option<Bytes>> {
        not_for_pingora()
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        not_for_pingora()
    }

    async fn write_response_header(&mut self, _: Box<ResponseHeader>, _: bool) -> Result<()> {
        not_for_pingora()
    }

    async fn write_response_header_ref(&mut self, _: &ResponseHeader, _: bool) -> Result<()> {
        not_for_pingora()
    }

    async fn write_body(&mut self, _: Bytes, _: bool) -> Result<()> {
        not_for_pingora()
    }

    async fn write_trailers(&mut self, _: HeaderMap) -> Result<()> {
        not_for_pingora()
    }

    async fn response_duplex_vec(&mut self, _: Vec<HttpTask>) -> Result<bool> {
        not_for_pingora()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        None
    }

    fn is_body_done(&mut self) -> bool {
        true
    }

    fn is_body_empty(&mut self) -> bool {
        true
    }

    fn body_bytes_sent(&self) -> usize {
        0
    }

    fn body_bytes_read(&self) -> usize {
        0
    }

    fn set_read_timeout(&mut self, _: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, _: Option<Duration>) {}

    fn get_write_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_total_drain_timeout(&mut self, _: Option<Duration>) {}

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        None
    }

    fn digest(&self) -> Option<&Digest> {
        None
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        None
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        None
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        None
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        None
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<MessageReader> {
        None
    }

    fn restore_custom_message_reader(&mut self, _: MessageReader) -> Result<()> {
        not_for_pingora()
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _: Box<dyn CustomMessageWrite>) -> Result<()> {
        not_for_pingora()
    }
}
