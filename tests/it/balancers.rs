//! Real balancers with the configurations of `conf/balancers`, in front of two instances.
//!
//! Each test has loopback addresses of its own, which no other test binds: the balancer listens on
//! one and connects from another, so that it is trusted and its clients are not.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admin::{eventually, metrics, series};
use crate::support::check::request_id;
use crate::support::client::{Broken, Client, PATIENCE};
use crate::support::client2::Client2;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;
use crate::support::script::good;
use crate::support::secure::{Pair, secured};

/// An address of 127.0.0.0/8 for this process and `last`.
fn address(net: u8, last: u8) -> IpAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(
        127,
        128 | (high & 0x3f),
        low,
        net * 32 + last,
    ))
}

/// Two instances that trust one balancer, and the balancer.
struct Stage {
    _node: Node,
    edges: Vec<Edge>,
    balancer: Child,
    listen: SocketAddr,
    net: u8,
    folder: Folder,
    setups: Vec<Setup>,
}

impl Stage {
    /// Runs the program `name` with `conf/balancers/<file>` on addresses of this machine.
    fn new(name: &str, file: &str, port: u16, setup: impl Fn(Setup, &Folder) -> Setup) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let net = NEXT.fetch_add(1, Ordering::Relaxed);
        let (node, folder) = (Node::start(good), Folder::new());
        let (listen, own) = (SocketAddr::new(address(net, 1), 8080), address(net, 2));
        let trusted = format!("[\"{own}\"]");
        let common = Setup::before(node.address()).set("gateway.trusted_proxies", &trusted);
        let common = setup(common, &folder);
        let edges = vec![common.start(), common.start()];
        let at = |edge: &Edge| {
            let listen = |address: SocketAddr| format!("\"{address}\"");
            common
                .clone()
                .set("gateway.listen", &listen(edge.gateway()))
                .set("admin.listen", &listen(edge.admin()))
        };
        let setups = edges.iter().map(at).collect();
        let mut text =
            std::fs::read_to_string(format!("conf/balancers/{file}")).expect("it is there");
        for (place, edge) in [("10.0.0.11", &edges[0]), ("10.0.0.12", &edges[1])] {
            let admin = format!(
                "{} check port {} inter 100ms",
                edge.gateway(),
                edge.admin().port()
            );
            let is_checked = name == "haproxy";
            let server = if is_checked {
                admin
            } else {
                edge.gateway().to_string()
            };
            text = text.replace(&format!("{place}:{port}"), &server);
        }
        text = text
            .replace("192.0.2.1:443", &listen.to_string())
            .replace("maxconn 20000", "maxconn 100")
            .replace("192.0.2.1:80", &listen.to_string())
            .replace(
                "default-server send",
                &format!("default-server source {own} send"),
            )
            .replace(
                "proxy_http_version",
                &format!("proxy_bind {own}; proxy_http_version"),
            );
        if name == "nginx" {
            let mut places = String::from("http { access_log off;");
            for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
                places += &format!(" {kind}_temp_path {};", folder.file(kind));
            }
            text = text.replace("http {", &places);
        }
        let file = folder.secret(file, &text);
        let mut balancer = program(name, &file, &folder);
        wait_for(listen, &mut balancer);
        Self {
            _node: node,
            edges,
            balancer,
            listen,
            net,
            folder,
            setups,
        }
    }

    /// Reads without a pause while `work` changes the instances; returns how many answers were not
    /// 200, and how many reads there were. `ask` sends one for the client at a place.
    fn lost_during(
        &mut self,
        ask: impl Fn(u8) -> Result<Response, Broken> + Sync,
        work: impl FnOnce(&mut Self),
    ) -> (Vec<String>, usize) {
        let (is_over, all) = (AtomicBool::new(false), AtomicUsize::new(0));
        let lost = Mutex::new(Vec::new());
        let read = |first: u8| {
            for last in (first..).take(20).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                all.fetch_add(1, Ordering::Relaxed);
                match ask(last) {
                    Ok(response) if response.status == 200 => {}
                    other => lost.lock().push(format!("{other:?}")),
                }
            }
        };
        std::thread::scope(|scope| {
            for first in [40, 60] {
                scope.spawn(move || read(first));
            }
            work(self);
            is_over.store(true, Ordering::Relaxed);
        });
        (lost.into_inner(), all.into_inner())
    }

    /// Stops an instance, whose exit waits for a client that sends its body slowly, and starts it
    /// again.
    fn restart(&mut self, instance: usize, slow: &mut Client) {
        slow.send(slow_head());
        slow.silent_for(Duration::from_millis(200));
        self.edges[instance].signal("TERM");
        let body = vec![b' '; 30];
        slow.drip(&body, Duration::from_millis(200));
        assert_eq!(self.edges[instance].wait().code(), Some(0));
        self.edges[instance] = self.setups[instance].start();
    }

    /// The instance that logged this response, and the client in its line.
    fn served_by(&self, response: &Response) -> (usize, String) {
        assert_eq!(response.status, 200, "{}", response.text());
        let id = request_id(response);
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Client::connect(self.edges[0].admin());
        loop {
            for (place, edge) in self.edges.iter().enumerate() {
                let line = edge.lines().into_iter().find(|line| line.contains(id));
                if let Some(line) = line {
                    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
                    return (
                        place,
                        line["client"].as_str().unwrap_or_default().to_owned(),
                    );
                }
            }
            assert!(Instant::now() < deadline, "neither has logged {id}");
            let _silence = pause.silent_for(Duration::from_millis(10));
        }
    }

    /// A connection of the client at place `last`.
    fn client(&self, last: u8) -> (Client, String) {
        let from = address(self.net, last);
        (
            Client::over(stream_from(from, self.listen)),
            from.to_string(),
        )
    }
}

/// A connection from this address.
fn stream_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _gone_already = self.balancer.kill();
        let _status = self.balancer.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.file("log"));
            eprintln!("log of the balancer:\n{}", log.unwrap_or_default());
        }
    }
}

/// Starts a balancer in the foreground.
fn program(name: &str, file: &str, folder: &Folder) -> Child {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let log = std::fs::File::create(folder.file("log")).expect("the folder is ours");
    let mut command = Command::new(name);
    match name {
        "nginx" => {
            let globals = format!(
                "daemon off; master_process off; pid {};",
                folder.file("pid")
            );
            command.args(["-e", "stderr", "-c", file, "-g", &globals]);
        }
        _ => {
            command.args(["-db", "-f", file]);
        }
    }
    command
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
        .spawn()
        .unwrap_or_else(|error| panic!("install {name}: {error}"))
}

fn wait_for(listen: SocketAddr, balancer: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(listen).is_err() {
        let ended = balancer.try_wait().expect("it is our child");
        assert!(ended.is_none(), "the balancer ended: {ended:?}");
        assert!(Instant::now() < deadline, "the balancer does not listen");
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs HAProxy: run tests/run"]
fn haproxy_names_the_client_and_keeps_its_instance() {
    let pair = Pair::new();
    let mut stage = Stage::new("haproxy", "haproxy.cfg", 8443, |setup, folder| {
        pair.write(folder);
        secured(setup, "gateway", folder).set("gateway.proxy_protocol", "true")
    });
    let question = Request::post(QUESTION);
    let over_1 = pair.client(stage.listen).ask(&question);
    let (first, client) = stage.served_by(&over_1);
    assert_eq!(client, "127.0.0.1", "not the balancer");
    for _ in 0..3 {
        let over_2 = Client2::connect(stage.listen, &pair).ask(&question);
        assert_eq!(
            stage.served_by(&over_2),
            (first, "127.0.0.1".to_owned()),
            "HTTP/2"
        );
    }
    // its health check notices, and the client moves
    stage.edges[first].signal("KILL");
    let deadline = Instant::now() + PATIENCE;
    let moved = loop {
        let mut client = pair.client(stage.listen);
        client.send(question.bytes());
        if let Ok(response) = client.try_response() {
            break response;
        }
        assert!(Instant::now() < deadline, "the other instance serves");
    };
    let line = stage.edges[1 - first].request_line(request_id(&moved));
    assert_eq!(line["client"], "127.0.0.1");
    stage.edges.clear();
}

/// A head whose body does not arrive in time.
fn slow_head() -> Vec<u8> {
    let whole = Request::post("x".repeat(60)).bytes();
    whole[..whole.len() - 60].to_vec()
}

/// Long enough for the checks of HAProxy in these tests; a short wait for slow bodies.
fn restarting(setup: Setup) -> Setup {
    setup
        .set("server.drain_delay", "\"2s\"")
        .set("gateway.connections.body_timeout", "\"4s\"")
}

#[test]
#[ignore = "needs nginx: run tests/run"]
fn a_restart_behind_nginx_loses_no_read() {
    let mut stage = Stage::new("nginx", "nginx.conf", 8080, |setup, _| restarting(setup));
    let (net, listen) = (stage.net, stage.listen);
    let ask = |last| {
        let mut client = Client::over(stream_from(address(net, last), listen));
        client.send(Request::post(QUESTION).bytes());
        client.try_response()
    };
    let (lost, all) = stage.lost_during(ask, |stage| {
        for instance in [0, 1] {
            let mut slow = stage.edges[instance].client();
            stage.restart(instance, &mut slow);
        }
        std::thread::sleep(Duration::from_secs(2));
        stage.edges[0].signal("KILL");
        let _status = stage.edges[0].wait();
        stage.edges[0] = stage.setups[0].start();
    });
    assert_eq!(lost.first(), None, "{} of {all}", lost.len());
    assert!(all > 300, "{all}");
}

#[test]
#[ignore = "needs HAProxy: run tests/run"]
fn a_restart_behind_haproxy_loses_no_read() {
    let pair = Pair::new();
    let mut stage = Stage::new("haproxy", "haproxy.cfg", 8443, |setup, folder| {
        pair.write(folder);
        restarting(secured(setup, "gateway", folder)).set("gateway.proxy_protocol", "true")
    });
    let listen = stage.listen;
    let question = Request::post(QUESTION);
    let (first, _) = stage.served_by(&pair.client(listen).ask(&question));
    let ask = |_| {
        let mut client = pair.client(listen);
        client.send(question.bytes());
        client.try_response()
    };
    let (lost, all) = stage.lost_during(ask, |stage| {
        let mut slow = pair.client(listen);
        stage.restart(first, &mut slow);
    });
    assert_eq!(lost.first(), None, "{} of {all}", lost.len());
    assert!(all > 100, "{all}");
}

#[test]
#[ignore = "needs HAProxy: run tests/run"]
fn haproxy_checks_health_by_a_local_header() {
    let node = Node::start(good);
    let edge = Setup::before(node.address())
        .set("gateway.proxy_protocol", "true")
        .start();
    let folder = Folder::new();
    let mut file = std::fs::File::create(folder.file("check.cfg")).unwrap();
    write!(
        file,
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         listen checked\n bind {}:8080\n option httpchk GET /healthz\n \
         server one {} send-proxy-v2 check inter 100ms\n",
        address(0, 1),
        edge.gateway()
    )
    .unwrap();
    let mut haproxy = program("haproxy", &folder.file("check.cfg"), &folder);
    eventually(&edge, "a check has a header", |_| {
        let labels = ["surface=\"gateway\"", "outcome=\"local\""];
        series(&metrics(&edge), "portcullis_proxy_headers_total", &labels) >= 1.0
    });
    edge.line("its request", |line| {
        line["path"] == "/healthz" && line["status"] == 200
    });
    haproxy.kill().unwrap();
    haproxy.wait().unwrap();
}

#[test]
#[ignore = "needs nginx: run tests/run"]
fn nginx_names_the_client_and_keeps_its_instance() {
    let stage = Stage::new("nginx", "nginx.conf", 8080, |setup, _| setup);
    let question = Request::post(QUESTION).with("X-Forwarded-For", "203.0.113.5");
    for last in 10..18 {
        let mut served = Vec::new();
        for _ in 0..3 {
            let (mut client, from) = stage.client(last);
            let (instance, logged) = stage.served_by(&client.ask(&question));
            assert_eq!(
                logged, from,
                "neither the balancer nor what the client claims"
            );
            served.push(instance);
        }
        assert!(
            served.windows(2).all(|two| two[0] == two[1]),
            "one client, one instance"
        );
    }
}
