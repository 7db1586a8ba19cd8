//! URLs of PostgreSQL with one host or several, as libpq reads them: of several servers, the one
//! that accepts writes is used, or one that follows it.

use super::StoreError;
use sqlx::postgres::PgConnectOptions;

const TARGET: &str = "target_session_attrs=";

/// The server that is used of several.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The one that accepts writes.
    Primary,
    /// One that follows it.
    Standby,
}

/// A URL, divided.
pub(super) struct Hosts {
    /// The options for the first host.
    pub(super) options: PgConnectOptions,
    /// All hosts, with their ports.
    pub(super) all: Vec<(String, u16)>,
}

/// Parses the URL.
pub(super) fn parse(url: &str, target: Target) -> Result<Hosts, StoreError> {
    let rest = ["postgres://", "postgresql://"]
        .into_iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest else {
        return Err(StoreError::Url(
            "expected sqlite:FILE or postgres://USER@HOST:PORT/DATABASE",
        ));
    };
    if rest
        .split_once('@')
        .is_some_and(|(user, _)| user.contains(':'))
    {
        return Err(StoreError::Url(
            "move the password to the file of store.password_file",
        ));
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = without_target(query, target)?;
    let (authority, database) = address.split_once('/').unwrap_or((address, ""));
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let at = if user.is_empty() { "" } else { "@" };
    let mut parsed = Vec::new();
    for host in hosts.split(',') {
        let one = format!("postgres://{user}{at}{host}/{database}?{query}");
        parsed.push(one.parse::<PgConnectOptions>()?);
    }
    let all = parsed
        .iter()
        .map(|one| (one.get_host().to_owned(), one.get_port()))
        .collect();
    // only the name and the port differ
    if parsed
        .iter()
        .any(|one| one.get_socket() != parsed[0].get_socket())
    {
        return Err(StoreError::Url(
            "the hosts must not be of different sockets",
        ));
    }
    let mut parsed = parsed.into_iter();
    let options = parsed.next().expect("a text has a first part");
    Ok(Hosts { options, all })
}

/// The hosts of a URL, with their ports; none of one that is no URL of PostgreSQL.
pub fn hosts_of(url: &str) -> Vec<(String, u16)> {
    let parsed = parse(url, Target::Primary).or_else(|_| parse(url, Target::Standby));
    parsed.map(|hosts| hosts.all).unwrap_or_default()
}

/// The parameters without `target_session_attrs`, which our driver does not know.
fn without_target(query: &str, target: Target) -> Result<String, StoreError> {
    let (accepted, message) = match target {
        Target::Primary => (
            ["read-write", "primary"],
            "target_session_attrs must be read-write or primary",
        ),
        Target::Standby => (
            ["standby", "read-only"],
            "target_session_attrs must be standby or read-only",
        ),
    };
    let mut kept = Vec::new();
    for parameter in query.split('&') {
        match parameter.strip_prefix(TARGET) {
            None => kept.push(parameter),
            // what is used in any case
            Some(named) if accepted.contains(&named) => {}
            Some(_) => return Err(StoreError::Url(message)),
        }
    }
    Ok(kept.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_host_or_several() {
        for (url, expected) in [
            ("postgres://me@a:1/db", vec![("a", 1)]),
            ("postgresql://me@a/db", vec![("a", 5432)]),
            (
                "postgres://me@a:1,b,10.0.0.1:3/db?target_session_attrs=read-write",
                vec![("a", 1), ("b", 5432), ("10.0.0.1", 3)],
            ),
            (
                "postgres://a:1,b:2/db?sslmode=disable",
                vec![("a", 1), ("b", 2)],
            ),
        ] {
            let found = parse(url, Target::Primary).unwrap();
            let all: Vec<_> = found
                .all
                .iter()
                .map(|(host, port)| (&**host, *port))
                .collect();
            assert_eq!(all, expected, "{url}");
            assert_eq!(found.options.get_database(), Some("db"), "{url}");
        }
    }

    #[test]
    fn a_url_without_a_primary_is_refused() {
        const ANY: &str = "postgres://a,b/db?target_session_attrs=any";
        const STANDBY: &str = "postgres://a,b/db?target_session_attrs=standby";
        assert!(parse(STANDBY, Target::Standby).is_ok());
        for (url, target, why) in [
            (
                "postgres://me:secret@a,b/db",
                Target::Primary,
                "move the password",
            ),
            (ANY, Target::Primary, "read-write or primary"),
            (STANDBY, Target::Primary, "read-write or primary"),
            (ANY, Target::Standby, "standby or read-only"),
            ("mysql://a/db", Target::Primary, "expected sqlite:FILE"),
        ] {
            let error = parse(url, target).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains(why)), "{url}");
        }
    }
}
