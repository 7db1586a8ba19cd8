//! A server that answers piece by piece. It runs on threads, as paused tokio clocks stop tokio's
//! timers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Answers each request by its path: pieces of the response, with a pause before each. Returns the
/// port.
pub(crate) fn serve(
    pause: Duration,
    answer: impl Fn(&str) -> Vec<Vec<u8>> + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || respond(stream, pause, &*answer));
        }
    });
    port
}

fn respond(mut stream: TcpStream, pause: Duration, answer: &dyn Fn(&str) -> Vec<Vec<u8>>) {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).unwrap_or_default();
    let head = String::from_utf8_lossy(&head[..length]);
    for piece in answer(head.split(' ').nth(1).unwrap_or_default()) {
        thread::sleep(pause);
        if stream.write_all(&piece).is_err() {
            return;
        }
    }
}
