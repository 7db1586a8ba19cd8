//! Names of environment variables that are nearly ours, and configurations that are accepted with a
//! warning.

use super::{LEAST, messages, parse, with, with_env};

#[test]
fn a_variable_with_other_underscores_is_an_error() {
    for name in [
        "PORTCULLIS_GATEWAY_LISTEN",
        "PORTCULLIS_GATEWAY__LISTEN",
        "PORTCULLIS__GATEWAY_LISTEN",
        "PORTCULLIS___GATEWAY__LISTEN",
        "portcullis__gateway__listen",
    ] {
        let found = messages(with_env(LEAST, &[(name, "127.0.0.1:0")]));
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(
            found[0].starts_with(&format!("environment variable {name}: ")),
            "{found:?}"
        );
        assert!(
            found[0].contains("PORTCULLIS__GATEWAY__LISTEN"),
            "{found:?}"
        );
    }
}

#[test]
fn a_variable_with_a_typing_mistake_is_a_warning() {
    let config = with_env(LEAST, &[("PORTCULLIS_GATEWAY_LISTN", "127.0.0.1:0")]).unwrap();
    let expected = "environment variable PORTCULLIS_GATEWAY_LISTN: gateway.listen: this name is \
                    not read; did you mean PORTCULLIS__GATEWAY__LISTEN?";
    let found: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(found, [expected]);
}

#[test]
fn variables_of_other_programs_are_ignored() {
    // of this repository's tests, and of Kubernetes for services named portcullis and
    // portcullis-gateway
    for name in [
        "PORTCULLIS",
        "PORTCULLIS_NODE",
        "PORTCULLIS_GATEWAY",
        "PORTCULLIS_TEST_POSTGRES",
        "PORTCULLIS_TEST_REDIS",
        "PORTCULLIS_PORT",
        "PORTCULLIS_SERVICE_HOST",
        "PORTCULLIS_PORT_8080_TCP_ADDR",
        "PORTCULLIS_GATEWAY_SERVICE_PORT",
        "PORTCULLIS_GATEWAY_PORT_8080_TCP",
    ] {
        let config = with_env(LEAST, &[(name, "x")]).unwrap();
        assert_eq!(config.warnings, [], "{name}");
    }
}

#[test]
fn a_variable_alone_switches_nothing_on_quietly() {
    let found = messages(with_env(
        LEAST,
        &[("PORTCULLIS__RELAY__LISTEN", "127.0.0.1:0")],
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    let start = "environment variable PORTCULLIS__RELAY__LISTEN: relay: this switches [relay] on";
    assert!(found[0].starts_with(start), "{found:?}");
    for key in [
        "token_files",
        "pins.owner",
        "keys.owner_file",
        "policy.ecosystem_ready",
    ] {
        assert!(found[0].contains(key), "{key} is missing, too: {found:?}");
    }
    let of_the_file = messages(parse(&format!("{LEAST}[relay]\n")));
    assert!(
        of_the_file.len() > 10,
        "a section of the file is meant: {of_the_file:?}"
    );
}

#[test]
fn keys_over_http_are_a_warning() {
    for (key, url, warns) in [
        ("jwks_url", "http://idp.example/jwks", true),
        ("plc_url", "http://plc.example", true),
        ("jwks_url", "https://idp.example/jwks", false),
        ("jwks_url", "http://127.0.0.1:9000/jwks", false),
        ("jwks_url", "", false),
    ] {
        let key = format!("sidecar.session.{key}");
        let config = parse(&with(&key, &format!("{url:?}"))).unwrap();
        let named: Vec<_> = config
            .warnings
            .iter()
            .map(|warning| &*warning.key)
            .collect();
        assert_eq!(named == [&*key], warns, "{url}: {named:?}");
        assert_eq!(named.is_empty(), !warns, "{url}: {named:?}");
    }
}

#[test]
fn variables_of_opentelemetry_set_the_collector() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/otlp");
    let name = ("OTEL_SERVICE_NAME", "edge");
    let ratio = ("OTEL_TRACES_SAMPLER_ARG", "0.25");
    let named = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop");
    let own = ("PORTCULLIS__TRACE__SERVICE_NAME", "own");
    let file = format!("{LEAST}[trace]\nratio = 0.5\n");
    let local = "http://127.0.0.1:4318/";
    for (text, env, expected) in [
        (LEAST, &[][..], None),
        (
            LEAST,
            &[endpoint],
            Some(("http://collector:4318/otlp", "portcullis", 0)),
        ),
        (
            LEAST,
            &[endpoint, name, ratio],
            Some((endpoint.1, "edge", 250_000)),
        ),
        (LEAST, &[endpoint, name, own], Some((endpoint.1, "own", 0))),
        (LEAST, &[endpoint, named], Some((endpoint.1, "shop", 0))),
        (
            LEAST,
            &[endpoint, named, name],
            Some((endpoint.1, "edge", 0)),
        ),
        // these do not switch traces on
        (LEAST, &[name, ratio], None),
        (&file, &[name], Some((local, "edge", 500_000))),
        (&file, &[ratio], Some((local, "portcullis", 250_000))),
        (
            &file,
            &[("OTEL_SERVICE_NAME", "")],
            Some((local, "portcullis", 500_000)),
        ),
    ] {
        let trace = with_env(text, env).unwrap().trace;
        let found = trace.map(|trace| {
            (
                trace.endpoint.to_string(),
                trace.service_name,
                trace.ratio.millionths,
            )
        });
        let expected = expected.map(|(url, name, ratio)| (url.to_owned(), name.to_owned(), ratio));
        assert_eq!(found, expected, "{env:?}");
    }
    let found = messages(with_env(&file, &[("OTEL_TRACES_SAMPLER_ARG", "often")]));
    let expected = "environment variable OTEL_TRACES_SAMPLER_ARG: trace.ratio: expected a number \
                    from 0.0 to 1.0, found \"often\"";
    assert_eq!(found, [expected]);
}
