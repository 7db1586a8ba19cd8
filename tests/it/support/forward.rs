//! A listener whose connections a test handles one by one, until the tests end.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::net::TcpStream;

/// Handles each connection in a task of its own; returns the listener's address.
pub(crate) fn listen<F>(handle: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("it is open");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(handle(stream));
            }
        });
    });
    address
}
