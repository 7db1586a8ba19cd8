//! What `dev` prints: the addresses of everything, and commands to try.

use super::network::TOKEN;
use crate::process::server::Bound;
use crate::telemetry::Surface;
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

/// A line on where a surface is, and what to try there.
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

/// The whole text; `publisher` is the DID of the feeds.
pub(super) fn text(node: &str, publisher: &str, state: &Path, bound: &Bound) -> String {
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
        }
    }
    let text = format!(
        "\nPortcullis is running.\n\n{addresses}  node      {node}   (private: clients never see \
         it)\n  config    STATE/portcullis.toml\n\nTry, in another terminal:\n\n{commands}\n\
         Ctrl-C stops everything. Log lines follow.\n\n"
    );
    let state = state.display().to_string();
    // in a query, its % is escaped
    let publisher = publisher.replace('%', "%25");
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
    ];
    placeholders.iter().fold(text, |text, (name, value)| text.replace(name, value))
}
