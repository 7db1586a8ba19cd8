//! A small node: JSON-RPC over HTTP/1.1 with keep-alive, on its own thread.
//!
//! It trusts its callers, which belong to the bench. `answers` holds the responses.

use crate::answers;
use crate::connection::{Stream, content_length};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

/// How long a devnet takes for a call; identical requests in this window share one flight.
const CALL_TIME: Duration = Duration::from_millis(1);

/// A node that serves until the process ends.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
}

impl Node {
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("the socket is open");
        let address = listener.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime can be made").block_on(async {
                let listener = TcpListener::from_std(listener).expect("it does not block");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream));
                }
            });
        });
        Self { address }
    }
}

/// Serves one connection until the peer closes it.
async fn serve(stream: TcpStream) {
    let Ok(mut stream) = Stream::over(stream) else {
        return;
    };
    while let Some(request) = stream.message(is_request).await {
        let length = request.whole.len();
        let Some(answer) = answer(request.body).await else {
            return;
        };
        stream.consume(length);
        if stream.tcp.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The length of a request's head and body, once the head is complete.
fn is_request(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else {
        return None;
    };
    Some((head, content_length(request.headers)))
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(default)]
    params: Value,
}

async fn answer(body: &[u8]) -> Option<String> {
    let Call { id, method, params } = serde_json::from_slice(body).ok()?;
    if method == "starknet_call" {
        tokio::time::sleep(CALL_TIME).await;
    }
    let payload = answers::payload(method, &params);
    let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
    let length = start.len() + payload.len() + 1;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    Some(format!("{head}{length}\r\n\r\n{start}{payload}}}"))
}
