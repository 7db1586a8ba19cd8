//! `check` on certificates that are ordered: whether an authority can reach the ports of its
//! challenges; and with `--live`, whether the names resolve, its directory answers, and the clock
//! is right.

use super::report::{Finding, Kind, Report, Status};
use bytes::Bytes;
use http::{Request, Response, header};
use portcullis_base::config::{AcmeConfig, Config, Elapsed, Listen, TlsConfig};
use portcullis_base::fetch::{self, Roots};
use portcullis_base::telemetry::Surface;
use portcullis_edge::http::tls;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// Timeout of the request to the authority.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The tolerated error of the clock. Authorities date certificates back by an hour at most, and
/// signed requests not at all. A clock that is synchronized is off by far less than a minute.
const LARGEST_ERROR: Duration = Duration::from_secs(60);

/// The parts of a directory that an order needs: RFC 8555, section 7.1.1.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Directory {
    #[expect(dead_code, reason = "it must be there")]
    new_order: String,
}

/// The surfaces whose certificates are ordered, with their domains.
fn ordered(config: &Config) -> impl Iterator<Item = (Surface, &TlsConfig)> {
    tls::configured(config.live()).filter(|(_, tls)| tls.is_ordered())
}

/// Whether an authority can reach a port that answers challenges.
pub(super) fn check(config: &Config, report: &mut Report) {
    let Some(acme) = &config.acme else { return };
    let keys: Vec<_> = ordered(config)
        .map(|(surface, _)| surface.listen_key())
        .collect();
    let has = |listen: &Listen, wanted| matches!(listen, Listen::Tcp(at) if at.port() == wanted);
    let mut listeners = config
        .listeners()
        .filter(|(key, _)| keys.iter().any(|of| of == key));
    let is_open = listeners.any(|(_, listen)| has(listen, 443))
        || acme
            .http_address
            .as_ref()
            .is_some_and(|listen| has(listen, 80));
    if keys.is_empty() || is_open {
        return;
    }
    let message = "an authority connects to port 443 of a domain, or to port 80 with \
                   tls.acme.http_address: forward one of them to its listener here";
    report.add(Finding::new(
        Kind::Authority,
        "tls.acme",
        Status::Note,
        message,
    ));
}

/// Requests the directory, and resolves the domains.
pub(super) async fn check_live(config: &Config, roots: Roots, report: &mut Report) {
    let Some(acme) = &config.acme else { return };
    let domains: BTreeSet<_> = ordered(config)
        .flat_map(|(surface, tls)| tls.domains.iter().map(move |of| (of, surface.name())))
        .collect();
    if domains.is_empty() {
        return;
    }
    for (domain, section) in domains {
        report.add(resolve(domain, &format!("{section}.tls.domains")).await);
    }
    directory(acme, roots, report).await;
}

async fn resolve(domain: &str, key: &str) -> Finding {
    let found = tokio::net::lookup_host((domain, 443)).await;
    let addresses: BTreeSet<_> = found.into_iter().flatten().map(|at| at.ip()).collect();
    if addresses.is_empty() {
        let message = format!("{domain} has no address: an authority cannot reach it");
        return Finding::failed(Kind::Authority, key, message);
    }
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let message = format!(
        "{domain} is {}; is that this machine?",
        addresses.join(", ")
    );
    Finding::ok(Kind::Authority, key, message)
}

async fn directory(acme: &AcmeConfig, roots: Roots, report: &mut Report) {
    const KEY: &str = "tls.acme.directory";
    let url = &acme.directory;
    let request = Request::get(url)
        .body(Bytes::new())
        .map_err(|error| error.to_string());
    let answer = match request {
        Ok(request) => fetch::exchange(request, roots, TIMEOUT).await,
        Err(error) => Err(error),
    };
    let now = SystemTime::now();
    match answer.and_then(|answer| read(&answer).map(|()| answer)) {
        Ok(answer) => {
            report.add(Finding::ok(Kind::Authority, KEY, format!("{url} answers")));
            report.add(clock(&answer, now));
        }
        Err(why) => report.add(Finding::failed(
            Kind::Authority,
            KEY,
            format!("{url}: {why}"),
        )),
    }
}

fn read(answer: &Response<Bytes>) -> Result<(), String> {
    let directory = serde_json::from_slice::<Directory>(answer.body());
    match directory {
        Ok(_) if answer.status() == 200 => Ok(()),
        _ => Err(format!(
            "status {}, and no directory of ACME",
            answer.status().as_u16()
        )),
    }
}

/// Whether the clock agrees with the authority's: otherwise a new certificate is not valid yet.
fn clock(answer: &Response<Bytes>, now: SystemTime) -> Finding {
    const SUBJECT: &str = "clock";
    let date = answer
        .headers()
        .get(header::DATE)
        .and_then(|date| date.to_str().ok());
    let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) else {
        return Finding::new(
            Kind::Authority,
            SUBJECT,
            Status::Note,
            "the authority states no time",
        );
    };
    let (error, direction) = match now.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if error <= LARGEST_ERROR {
        return Finding::ok(Kind::Authority, SUBJECT, "it agrees with the authority's");
    }
    let error = Elapsed(Duration::from_secs(error.as_secs()));
    let message = format!("it is {error} {direction} the authority's: set it, and keep it set");
    Finding::failed(Kind::Authority, SUBJECT, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_reported() {
        let date = "Fri, 31 Dec 1999 23:59:00 GMT";
        let answer = Response::builder().header("date", date).body(Bytes::new());
        let answer = answer.expect("a response");
        let at = httpdate::parse_http_date(date).expect("a date");
        for (now, expected) in [
            (at, "it agrees with the authority's"),
            (at + LARGEST_ERROR, "it agrees with the authority's"),
            (
                at + Duration::from_secs(3_600),
                "it is 1h ahead of the authority's: ",
            ),
            (
                at - Duration::from_secs(86_400),
                "it is 1d behind the authority's: ",
            ),
        ] {
            let found = serde_json::to_string(&clock(&answer, now)).expect("a finding");
            assert!(found.contains(expected), "{found}");
        }
        let silent = clock(&Response::new(Bytes::new()), at);
        let silent = serde_json::to_string(&silent).expect("a finding");
        assert!(silent.contains("states no time"), "{silent}");
    }
}
