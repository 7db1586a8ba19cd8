//! What `dev` prints: where everything is, and what to try.

use super::network::TOKEN;
use crate::process::server::Bound;
use std::fmt::Write as _;
use std::path::Path;

/// The selector of `decimals`.
const DECIMALS: &str = "0x4c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9";

/// The whole text.
pub(super) fn text(node: &str, state: &Path, bound: &Bound) -> String {
    let mut text = String::from("\nPortcullis runs.\n\n");
    let mut line = |line: String| {
        // writing to a string does not fail
        let _ = writeln!(text, "{line}");
    };
    let state = state.display();
    if let Some(gateway) = &bound.gateway {
        line(format!("  gateway   http://{gateway}/rpc   (public, read-only)"));
    }
    if let Some(relay) = &bound.relay {
        line(format!(
            "  relay     http://{relay}   (for whoever has the token in {state}/relay.token)"
        ));
    }
    if let Some(sidecar) = &bound.sidecar {
        line(format!("  sidecar   http://{sidecar}/functions/   (feeds, podcasts, health, age)"));
    }
    if let Some(admin) = &bound.admin {
        line(format!("  admin     http://{admin}/   (a page for your browser; /docs, /metrics)"));
    }
    line(format!("  node      {node}   (private: a client never sees it)"));
    line(format!("  config    {state}/portcullis.toml"));
    line("\nTry, in another terminal:\n".into());
    if let Some(gateway) = &bound.gateway {
        let post = format!("curl -s http://{gateway}/rpc -H 'content-type: application/json' -d");
        line("  # a view call goes through: the STRK token's decimals".into());
        line(format!(
            "  {post} '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"starknet_call\",\"params\":\
             {{\"request\":{{\"contract_address\":\"{TOKEN}\",\"entry_point_selector\":\
             \"{DECIMALS}\",\"calldata\":[]}},\"block_id\":\"latest\"}}}}'"
        ));
        line("  # a write does not: 403".into());
        line(format!(
            "  {post} '{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\
             \"starknet_addInvokeTransaction\"}}'"
        ));
    }
    if let Some(relay) = &bound.relay {
        let bearer = format!("-H \"authorization: Bearer $(cat {state}/relay.token)\"");
        line("  # the relay proves every pin before it writes".into());
        line(format!("  curl -s {bearer} http://{relay}/readyz"));
        line("  # an operation that is done already is answered without a transaction".into());
        line(format!(
            "  curl -s {bearer} -H 'content-type: application/json' -d '{{}}' \
             http://{relay}/require-v2"
        ));
    }
    if let Some(sidecar) = &bound.sidecar {
        let functions = format!("http://{sidecar}/functions");
        line("  # a feed, and a podcast".into());
        line(format!(
            "  curl -s '{functions}/getFeedSkeleton?limit=3&feed=at://did:web:127.0.0.1%253A8082/\
             app.bsky.feed.generator/fresh-pulls'"
        ));
        line(format!("  curl -s '{functions}/podcast-rss-feed?handle=ember.cards.example'"));
        line("  # a signed-in user begins to prove an age".into());
        line(format!(
            "  curl -s -X POST -H \"authorization: Bearer $(cat {state}/user.session)\" \
             {functions}/age-verification-session"
        ));
    }
    if let Some(admin) = &bound.admin {
        line("  # what came of them".into());
        line(format!("  curl -s http://{admin}/metrics | grep 'requests_total{{' | grep -v ' 0$'"));
    }
    line("\nCtrl-C ends it all. Log lines follow.\n".into());
    text
}
