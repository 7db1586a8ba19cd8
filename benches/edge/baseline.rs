//! Bare Pingora: forwards every request to the node without inspecting it. The minimum cost of a
//! proxy written on Pingora in the usual way.
//!
//! Runs as a child process of the bench, on one thread like the program it is compared with.

use async_trait::async_trait;
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::{SocketAddr, TcpListener};

/// The first argument of the child process.
const WORD: &str = "--pass-through";

/// The arguments of a child that listens on `own`.
pub(crate) fn arguments(own: SocketAddr, node: SocketAddr) -> [String; 3] {
    [WORD.into(), own.to_string(), node.to_string()]
}

/// The listen and node addresses, if this process is such a child.
pub(crate) fn requested() -> Option<(SocketAddr, SocketAddr)> {
    let mut arguments = std::env::args().skip(1);
    arguments.next().filter(|first| first == WORD)?;
    Some((
        arguments.next()?.parse().ok()?,
        arguments.next()?.parse().ok()?,
    ))
}

/// An unused address; Pingora does not report which port it bound.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound")
}

struct PassThrough {
    node: SocketAddr,
}

#[async_trait]
impl ProxyHttp for PassThrough {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.node, false, String::new())))
    }
}

/// Serves until the process is killed.
pub(crate) fn run(own: SocketAddr, node: SocketAddr) {
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, PassThrough { node });
    service.add_tcp(&own.to_string());
    server.add_service(service);
    server.run_forever();
}
