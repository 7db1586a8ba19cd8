//! Servers in this process, on hyper: a judge, the origin behind the judges that are proxies, and
//! the node behind the program.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

/// The field of a response in which a server reports the request that it read.
pub(crate) const READ: &str = "x-read";

/// Starts the servers for the rest of the process: two that report what they read, on these
/// sockets, and the node, whose address is returned.
pub(crate) fn start(judge: &Path, origin: &Path) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let entered = runtime.enter();
    let unix = [judge, origin].map(|path| UnixListener::bind(path).expect("the folder is ours"));
    let node = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    drop(entered);
    let address = node.local_addr().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async {
            for listener in unix {
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(serve(stream, Service::Report));
                    }
                });
            }
            tokio::spawn(async move {
                while let Ok((stream, _)) = node.accept().await {
                    let _best_effort = stream.set_nodelay(true);
                    tokio::spawn(serve(stream, Service::Node));
                }
            });
            pending::<()>().await;
        });
    });
    address
}

#[derive(Clone, Copy)]
enum Service {
    Report,
    Node,
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, service: Service) {
    let respond = service_fn(move |request| async move {
        match service {
            Service::Report => report(request).await,
            Service::Node => answer(request).await,
        }
    });
    // a stream ends with the end of the client's output
    let mut server = hyper::server::conn::http1::Builder::new();
    let _its_end = server
        .half_close(true)
        .serve_connection(TokioIo::new(stream), respond)
        .await;
}

/// Responds with the request in a field; refuses a malformed body, and ends the connection after an
/// incomplete one.
async fn report(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let mut response = Response::new(Full::default());
    match body.collect().await {
        Ok(body) => {
            let target = hex::encode(parts.uri.to_string());
            let body = hex::encode(body.to_bytes());
            let read = format!("{} {target}:{body}", parts.method);
            response
                .headers_mut()
                .insert(READ, HeaderValue::try_from(read).expect("digits"));
        }
        Err(error) if is_incomplete(&error) => return Err(error),
        Err(_) => {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    Ok(response)
}

fn is_incomplete(error: &hyper::Error) -> bool {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is_incomplete_message()
        || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}

/// Responds as a node whose every result is 1.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let call: serde_json::Value = serde_json::from_slice(&body).expect("the program sends JSON");
    let answer = serde_json::json!({ "jsonrpc": "2.0", "id": call["id"], "result": "0x1" });
    let mut response = Response::new(Full::from(answer.to_string()));
    let json = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    Ok(response)
}
