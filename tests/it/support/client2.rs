//! An HTTP/2 client over TLS that sends what a test specifies, and reads responses as `client`
//! does.
//!
//! In: a [`Request`], or a head whose body the test sends itself. Out: a [`Response`], or how the
//! stream or the connection ended. No wait exceeds [`PATIENCE`].

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::PATIENCE;
use crate::support::request::Request;
use crate::support::response::{Framing, Response};
use crate::support::secure::{ANY, Pair, tunnel};

pub(crate) struct Client2 {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// A pending response, and the sender of the request's body.
pub(crate) struct Begun {
    pub(crate) answer: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
}

impl Client2 {
    /// Connects, and negotiates `h2`.
    pub(crate) fn connect(address: SocketAddr, pair: &Pair) -> Self {
        Self::with_window(address, pair, 1 << 20)
    }

    /// Connects with this initial stream window in bytes.
    pub(crate) fn with_window(address: SocketAddr, pair: &Pair, window: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let stream = tunnel(address, pair.config(ANY, &["h2"]));
        stream.set_nonblocking(true).expect("it is open");
        let (requests, connection) = runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
            let mut builder = h2::client::Builder::new();
            builder
                .initial_window_size(window)
                .initial_connection_window_size(8 << 20);
            let shaken = timeout(PATIENCE, builder.handshake(stream)).await;
            let (requests, connection) = shaken.expect("in time").expect("it speaks HTTP/2");
            (requests, tokio::spawn(connection))
        });
        Self {
            runtime,
            requests,
            connection,
        }
    }

    /// Sends a head; the body follows, unless `is_all`.
    pub(crate) fn begin(&mut self, request: &Request, is_all: bool) -> Result<Begun, h2::Error> {
        let (method, target, fields) = request.parts();
        // the first Host becomes `:authority`, as in real clients
        let host = fields
            .iter()
            .position(|(name, _)| name.eq_ignore_ascii_case("host"));
        let authority = host
            .map(|at| format!("https://{}", fields[at].1))
            .unwrap_or_default();
        let uri = authority + target;
        let mut head = http::Request::builder().method(method).uri(uri);
        for (at, (name, value)) in fields.iter().enumerate() {
            if Some(at) != host {
                head = head.header(name.to_ascii_lowercase(), value);
            }
        }
        let head = head.body(()).expect("a head that HTTP/2 has words for");
        let requests = self.requests.clone();
        let ready = self
            .runtime
            .block_on(async { timeout(PATIENCE, requests.ready()).await });
        self.requests = ready.expect("in time")?;
        let (answer, body) = self.requests.send_request(head, is_all)?;
        Ok(Begun { answer, body })
    }

    /// Sends a request and reads its response.
    pub(crate) fn ask(&mut self, request: &Request) -> Response {
        self.try_ask(request).expect("an answer")
    }

    /// Sends a request, and returns the response or the error.
    pub(crate) fn try_ask(&mut self, request: &Request) -> Result<Response, h2::Error> {
        let begun = self.send(request)?;
        self.response(begun)
    }

    /// Sends a whole request.
    pub(crate) fn send(&mut self, request: &Request) -> Result<Begun, h2::Error> {
        let body = Bytes::copy_from_slice(request.body());
        let mut begun = self.begin(request, body.is_empty())?;
        if !body.is_empty() {
            // an early refusal may have ended the stream already: the response shows it
            let _ = begun.body.send_data(body, true);
        }
        Ok(begun)
    }

    pub(crate) fn response(&self, begun: Begun) -> Result<Response, h2::Error> {
        self.in_time(async {
            let (head, body) = begun.answer.await?.into_parts();
            let headers: Vec<_> = head
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
                .collect();
            let status = head.status.as_u16();
            let ended = body.is_end_stream();
            let body = read(body).await?;
            let framing = if ended {
                Framing::Bodiless
            } else {
                Framing::Length
            };
            Ok(Response {
                version: "HTTP/2".into(),
                status,
                headers,
                framing,
                body,
            })
        })
    }

    /// Reads a response while the test goes on.
    pub(crate) fn read_meanwhile(&self, begun: Begun) -> JoinHandle<Result<Vec<u8>, h2::Error>> {
        self.runtime
            .spawn(async { read(begun.answer.await?.into_body()).await })
    }

    /// Waits for the head of a response whose body stays unread; returns its status.
    pub(crate) fn unread(&self, begun: Begun) -> (u16, RecvStream) {
        let (head, body) = self.in_time(begun.answer).expect("a response").into_parts();
        (head.status.as_u16(), body)
    }

    /// How a stream was reset, if that is known already.
    pub(crate) fn reset_of(&self, begun: &mut Begun) -> Option<Reason> {
        let answer = &mut begun.answer;
        let known = poll_fn(|cx| Poll::Ready(Pin::new(&mut *answer).poll(cx)));
        match self.in_time(known) {
            Poll::Ready(Err(error)) => error.reason(),
            _ => None,
        }
    }

    /// Whether a body has neither more bytes nor an end.
    pub(crate) fn is_silent(&self, body: &mut RecvStream) -> bool {
        self.in_time(poll_fn(|cx| Poll::Ready(body.poll_data(cx).is_pending())))
    }

    /// Reads the rest of a body.
    pub(crate) fn rest_of(&self, body: &mut RecvStream) -> Result<(), h2::Error> {
        self.in_time(async {
            while let Some(piece) = body.data().await {
                piece?;
            }
            Ok(())
        })
    }

    /// How the stream of an unread response ends.
    pub(crate) fn end_of(&self, begun: Begun) -> Option<Reason> {
        let ended = self.in_time(async {
            let mut body = begun.answer.await?.into_body();
            // read what has arrived, without extending the window
            while let Some(piece) = body.data().await {
                piece?;
            }
            Ok::<_, h2::Error>(())
        });
        ended.err().and_then(|error| error.reason())
    }

    /// Waits until the connection ends, and returns how.
    pub(crate) fn ended(self) -> Result<(), h2::Error> {
        let Self {
            runtime,
            requests,
            connection,
        } = self;
        let ended = runtime.block_on(async { timeout(PATIENCE, connection).await });
        drop(requests);
        ended.expect("in time").expect("it does not panic")
    }

    /// Waits until the server accepts no more requests.
    pub(crate) fn farewell(&self) {
        self.in_time(async {
            while self.requests.clone().ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
    }

    /// The maximum number of concurrent requests.
    pub(crate) fn max_streams(&self) -> usize {
        self.requests.current_max_send_streams()
    }

    fn in_time<T>(&self, done: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { timeout(PATIENCE, done).await })
            .expect("in time")
    }
}

async fn read(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        all.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(all)
}
