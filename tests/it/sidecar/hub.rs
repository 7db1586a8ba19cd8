//! The hub of podcasts: how feeds name it, and when it is pinged.

use std::thread;
use std::time::{Duration, Instant};

use crate::admin::{eventually, series};
use crate::support::node::{Call, Node};
use crate::support::script::{send, sized};
use crate::support::sidecar::content::{ALICE_DID, DORA_DID, episode};
use crate::support::sidecar::stage::{BASE, Stage, encoded};
use crate::support::sidecar::token::seconds_from_now;

const FEED: &str = "/functions/podcast-rss-feed?did=";
const PINGS: &str = "portcullis_sidecar_hub_pings_total";

fn stage(hub: &Node) -> Stage {
    let url = format!("\"http://{}/hub?a=b\"", hub.address());
    Stage::with(&[("sidecar.podcasts.hub_url", &url)])
}

/// A new episode of a creator.
fn appears(stage: &Stage, did: &str, number: u32) {
    stage.sql(&episode(did, number, seconds_from_now(-1) * 1_000_000));
}

/// Waits until the hub was pinged this often.
fn pings(hub: &Node, count: usize) -> Vec<Call> {
    let deadline = Instant::now() + Duration::from_secs(90);
    while hub.calls().len() < count {
        assert!(Instant::now() < deadline, "{} pings", hub.calls().len());
        thread::sleep(Duration::from_millis(100));
    }
    hub.calls()
}

#[test]
fn an_episode_that_appears_is_announced_once() {
    let hub = Node::start(|_| send(sized("202 Accepted", &[], "")));
    let stage = stage(&hub);
    let path = format!("{FEED}{ALICE_DID}");
    let feed = stage.get(&path);
    let url = format!("http://{}/hub?a=b", hub.address());
    let links = format!("<{BASE}{path}>; rel=\"self\", <{url}>; rel=\"hub\"");
    assert_eq!(feed.header("Link"), Some(&*links));
    let element = format!("<atom:link href=\"{url}\" rel=\"hub\"/>");
    assert!(feed.text().contains(&element), "{}", feed.text());

    // hers is taken down
    appears(&stage, DORA_DID, 70);
    appears(&stage, ALICE_DID, 70);
    let calls = pings(&hub, 1);
    let head = &calls[0].head;
    assert!(head.starts_with("POST /hub?a=b HTTP/1.1\r\n"), "{head}");
    let form = "application/x-www-form-urlencoded";
    let media_type = ("content-type".to_owned(), form.to_owned());
    assert!(calls[0].headers().contains(&media_type), "{head}");
    let topic = encoded(&format!("{BASE}{path}"));
    let topic = topic.replace('-', "%2D").replace('.', "%2E");
    let body = format!("hub.mode=publish&hub.topic={topic}&hub.url={topic}");
    assert_eq!(String::from_utf8_lossy(&calls[0].body), body);
    let served = stage.get(&path);
    assert!(
        served.text().contains("Episode 70"),
        "the hub fetches the new feed"
    );
    eventually(&stage.edge, "the ping is counted", |now| {
        series(now, PINGS, &["accepted"]) == 1.0
    });
    thread::sleep(Duration::from_secs(12));
    assert_eq!(hub.calls().len(), 1, "once, and no other feed");
}

#[test]
fn a_hub_that_fails_is_pinged_again() {
    let other = Node::start(|_| send(sized("202 Accepted", &[], "")));
    let elsewhere = format!("Location: http://{}/", other.address());
    let hub = Node::start(move |call| match call.number {
        1 => send(sized("503 Busy", &[], "")),
        _ => send(sized("307 Elsewhere", &[&elsewhere], "")),
    });
    let stage = stage(&hub);
    let warned = |cause: &str| {
        stage.edge.line("a warning", |line| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("hub not pinged"))
                && line["cause"] == cause
        })
    };
    appears(&stage, ALICE_DID, 70);
    pings(&hub, 1);
    let line = warned("status 503");
    assert_eq!(line["level"], "warn", "{line}");
    pings(&hub, 2);
    warned("status 307");
    eventually(&stage.edge, "both are counted", |now| {
        let [failed, given_up] = ["failed", "given_up"].map(|of| series(now, PINGS, &[of]));
        [failed, given_up] == [1.0, 1.0]
    });
    assert!(other.calls().is_empty(), "a redirect is not followed");
}
