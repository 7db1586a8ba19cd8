//! Clients that read slowly, and all the time: they get all of a large answer.
//!
//! A socket's buffer is refilled once a third of it is acknowledged, which takes such a client
//! longer than it may stall. The pace is slow until that time is over.

use std::net::SocketAddr;
use std::time::Duration;

use h2::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::{Instant, interval};

use crate::http2::Stage;
use crate::support::client2::Client2;
use crate::support::forward::listen;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::{ANSWER_CAP, json, padded_envelope, send};

/// A client that takes nothing for 10 s is disconnected.
const STALL: Duration = Duration::from_secs(10);
/// Longer than that.
const SLOW: Duration = Duration::from_secs(14);
/// 32 KiB per second.
const STEP: usize = 8 << 10;
const PAUSE: Duration = Duration::from_millis(250);

/// A proxy to `edge` that passes its bytes on slowly for this time.
fn slow_line(edge: SocketAddr, time: Duration) -> SocketAddr {
    listen(move |client| async move {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(32 << 10).expect("it is new");
        let edge = socket.connect(edge).await.expect("the edge listens");
        let (mut from_edge, mut to_edge) = edge.into_split();
        let (mut from_client, mut to_client) = client.into_split();
        let up = async { tokio::io::copy(&mut from_client, &mut to_edge).await };
        let down = async {
            let (mut pace, start) = (interval(PAUSE), Instant::now());
            let mut step = vec![0; STEP];
            loop {
                if start.elapsed() < time {
                    pace.tick().await;
                }
                match from_edge.read(&mut step).await {
                    Ok(length) if length > 0 => to_client.write_all(&step[..length]).await?,
                    _ => return to_client.shutdown().await,
                }
            }
        };
        // the client sees how either direction ends
        let _ended = tokio::join!(up, down);
    })
}

fn large() -> Stage {
    Stage::before(
        Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP)))),
        &[],
    )
}

#[test]
fn a_slow_reader_over_tls_gets_the_whole_answer() {
    let stage = large();
    let mut client = stage.pair.client(slow_line(stage.edge.gateway(), SLOW));
    let answer = client.ask(&Request::post(QUESTION));
    assert!(
        answer.body.len() > ANSWER_CAP - 100,
        "{} bytes",
        answer.body.len()
    );
}

#[test]
fn a_slow_reader_over_http_2_gets_the_whole_answer() {
    let stage = large();
    let line = slow_line(stage.edge.gateway(), SLOW);
    let mut client = Client2::with_window(line, &stage.pair, 8 << 20);
    let answer = client.ask(&Request::post(QUESTION));
    assert!(
        answer.body.len() > ANSWER_CAP - 100,
        "{} bytes",
        answer.body.len()
    );
}

#[test]
fn a_stalled_stream_ends_while_another_progresses() {
    let stage = large();
    let line = slow_line(stage.edge.gateway(), 3 * STALL);
    let mut client = Client2::with_window(line, &stage.pair, 20_000);
    let read = client.send(&Request::post(QUESTION)).expect("sent");
    let read = client.read_meanwhile(read);
    let unread = client.send(&Request::post(QUESTION)).expect("sent");
    assert_eq!(
        client.end_of(unread),
        Some(Reason::CANCEL),
        "nothing of it is taken"
    );
    assert!(!read.is_finished(), "the other one is under way");
}
