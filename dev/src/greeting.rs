//! The output of `dev`: the addresses of everything, and commands to try.

use super::install::{IMAGE, RELEASE, VERSION};
use super::network::TOKEN;
use portcullis_base::telemetry::Surface;
use portcullis_program::process::server::Bound;
use std::path::Path;

/// The selector of `decimals`.
const DECIMALS: &str = "0x4c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9";

/// A call of `decimals`. A command is one line, so that it can be copied.
const VIEW_CALL: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"starknet_call\",\"params\":\
    {\"block_id\":\"latest\",\"request\":{\"contract_address\":\"TOKEN\",\
    \"entry_point_selector\":\"DECIMALS\",\"calldata\":[]}}}";
const JSON: &str = "-H 'content-type: application/json'";
const BEARER: &str = "-H \"authorization: Bearer $(cat STATE/relay.token)\"";
const SESSION: &str = "-H \"authorization: Bearer $(cat STATE/user.session)\"";

/// The line with a surface's address, and the commands to try on it.
type Lines = (&'static str, &'static str);

const GATEWAY: Lines = (
    "  gateway   ORIGIN/rpc   (public, read-only)\n",
    r#"  # a view call passes: the decimals of the STRK token
  curl -s ORIGIN/rpc JSON -d 'VIEW_CALL'
  # a write does not: 403
  curl -s ORIGIN/rpc JSON -d '{"jsonrpc":"2.0","id":2,"method":"starknet_addInvokeTransaction"}'
"#,
);
const RELAY: Lines = (
    "  relay     ORIGIN   (for clients with the token in STATE/relay.token)\n",
    r#"  # the relay proves every pin before it writes
  curl -s BEARER ORIGIN/readyz
  # an operation that is already done is answered without a transaction
  curl -s BEARER JSON -d '{}' ORIGIN/require-v2
"#,
);
const SIDECAR: Lines = (
    "  sidecar   ORIGIN/functions/   (feeds, podcasts, health, age)\n",
    r#"  # a feed, and a podcast
  curl -s 'ORIGIN/functions/getFeedSkeleton?limit=3&feed=FEED'
  curl -s 'ORIGIN/functions/podcast-rss-feed?handle=ember.cards.example'
  # a signed-in user begins to prove an age
  curl -s -X POST SESSION ORIGIN/functions/age-verification-session
"#,
);
const FEED: &str = "at://PUBLISHER/app.bsky.feed.generator/fresh-pulls";
const ADMIN: Lines = (
    "  admin     ORIGIN/   (a page for your browser; /docs, /metrics)\n",
    "  # the verdicts on those requests
  curl -s ORIGIN/metrics | grep 'requests_total{' | grep -v ' 0$'
",
);

/// The line for a relay that does not run, with the reason.
const NO_RELAY: &str = "  relay     off: it writes only to a network whose pins it can prove.
            On a starknet-devnet, --deploy sets up such a network; for another one,
            see [relay.pins] in conf/portcullis.toml
";

/// The text for a machine without a node, with faster ways to get one.
const NO_NODE: &str = "\
No starknet-devnet was found: cargo builds version VERSION of it, once. On two cores that takes
about 20 minutes. Until then reads get 503 node_starting; commands to try follow. Ctrl-C stops
everything; the next start continues the build.

Faster, before the next start:
  - install the package portcullis-devnet of a release (conf/package/README.md)
  - unpack starknet-devnet onto PATH, from
    RELEASE
  - run its image, and name that node
    docker run --rm -p 127.0.0.1:5050:5050 IMAGE
    portcullis dev --node http://127.0.0.1:5050/rpc --deploy
";

/// The values in the text, in addition to the addresses.
pub(super) struct Greeting<'a> {
    /// The node's URL.
    pub(super) node: &'a str,
    /// The DID of the feeds' publisher.
    pub(super) publisher: &'a str,
    /// The folder of `dev`.
    pub(super) state: &'a Path,
}

impl Greeting<'_> {
    /// The whole text.
    pub(super) fn text(&self, bound: &Bound) -> String {
        let (addresses, commands) = lines(bound);
        self.fill(format!(
            "\nPortcullis is running.\n\n{addresses}  node      {}   (private: clients never see \
             it)\n  config    STATE/portcullis.toml\n\nTry, in another terminal:\n\n{commands}\n\
             Ctrl-C stops everything. Log lines follow.\n\n",
            self.node
        ))
    }

    /// The text while the node is being built.
    pub(super) fn without_node(&self, bound: &Bound) -> String {
        let (addresses, _) = lines(bound);
        self.fill(format!(
            "\nPortcullis is running, without a node for now.\n\n{addresses}\n{NO_NODE}\n"
        ))
    }

    fn fill(&self, text: String) -> String {
        let state = self.state.display().to_string();
        // in a query, its % is escaped
        let publisher = self.publisher.replace('%', "%25");
        let placeholders = [
            ("SESSION", SESSION),
            ("BEARER", BEARER),
            ("JSON", JSON),
            ("VIEW_CALL", VIEW_CALL),
            ("TOKEN", TOKEN),
            ("DECIMALS", DECIMALS),
            ("FEED", FEED),
            ("PUBLISHER", &publisher),
            ("STATE", &state),
            ("VERSION", VERSION),
            ("RELEASE", RELEASE),
            ("IMAGE", IMAGE),
        ];
        placeholders
            .iter()
            .fold(text, |text, (name, value)| text.replace(name, value))
    }
}

/// The addresses of the surfaces, and commands to try.
fn lines(bound: &Bound) -> (String, String) {
    let surfaces = [
        (Surface::Gateway, GATEWAY),
        (Surface::Relay, RELAY),
        (Surface::Sidecar, SIDECAR),
        (Surface::Admin, ADMIN),
    ];
    let (mut addresses, mut commands) = (String::new(), String::new());
    for (surface, (address, command)) in surfaces {
        if let Some(origin) = bound.origin(surface) {
            addresses += &address.replace("ORIGIN", &origin);
            commands += &command.replace("ORIGIN", &origin);
        } else if surface == Surface::Relay {
            addresses += NO_RELAY;
        }
    }
    (addresses, commands)
}
