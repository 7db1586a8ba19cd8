//! `domains` and `[tls.acme]`: a certificate has files or domains, and domains are host names.

use super::{LEAST, messages, parse};

/// The smallest file with a certificate that is ordered, and these lines in `[gateway.tls]`.
fn ordered(tls: &str, acme: &str) -> String {
    format!("{LEAST}[gateway.tls]\n{tls}\n[tls.acme]\nterms_accepted = true\n{acme}\n")
}

#[test]
fn four_lines_are_a_public_gateway() {
    let text = "node.url = \"http://node/rpc\"\ngateway.listen = \"0.0.0.0:443\"\n\
                gateway.tls.domains = \"RPC.example.org\"\ntls.acme.terms_accepted = true\n";
    let config = parse(text).unwrap();
    let tls = config.gateway.unwrap().live.tls.unwrap();
    assert_eq!(tls.domains, ["rpc.example.org"]);
    assert_eq!(tls.certificate_file, tls.key_file, "one file has both");
    let file = tls.certificate_file.to_str().unwrap();
    assert!(
        file.starts_with("acme/rpc.example.org-") && file.ends_with(".pem"),
        "{file}"
    );
    let acme = config.acme.unwrap();
    assert_eq!(
        acme.directory,
        "https://acme-v02.api.letsencrypt.org/directory"
    );
    assert_eq!(acme.http_address, None);
}

#[test]
fn the_file_depends_on_authority_and_names() {
    let file = |domains: &str, directory: &str| {
        let acme = format!("directory = \"https://{directory}/dir\"");
        let config = parse(&ordered(&format!("domains = {domains}"), &acme)).unwrap();
        config.gateway.unwrap().live.tls.unwrap().certificate_file
    };
    let both = file("[\"a.test\", \"b.test\"]", "ca.test");
    assert_eq!(
        both,
        file("[\"b.test\", \"a.test\"]", "ca.test"),
        "the same names"
    );
    assert_ne!(both, file("[\"a.test\"]", "ca.test"), "other names");
    assert_ne!(
        both,
        file("[\"a.test\", \"b.test\"]", "staging.test"),
        "another authority"
    );
}

#[test]
fn a_certificate_has_files_or_domains() {
    for (tls, expected) in [
        (
            "domains = \"a.test\"\nkey_file = \"a.key\"",
            "or domains; found both",
        ),
        (
            "domains = []",
            "expected at least one domain, or certificate_file and key_file",
        ),
        (
            "domains = []\nkey_file = \"a.key\"",
            "expected at least one domain",
        ),
        (
            "key_file = \"a.key\"",
            "gateway.tls.certificate_file: this key is required",
        ),
    ] {
        let found = messages(parse(&ordered(tls, "")));
        assert_eq!(found.len(), 1, "{tls}: {found:?}");
        assert!(found[0].contains(expected), "{tls}: {found:?}");
    }
    let alone = format!("{LEAST}[gateway.tls]\ndomains = \"a.test\"\n");
    let found = messages(parse(&alone));
    assert!(
        found.len() == 1 && found[0].contains("expected a section [tls.acme]"),
        "{found:?}"
    );
}

#[test]
fn a_domain_is_a_host_name() {
    for (domain, expected) in [
        ("*.example.org", "a wildcard requires the challenge dns-01"),
        ("192.0.2.1", "an address has no certificate here"),
        ("2001:db8::1", "an address has no certificate here"),
        ("[2001:db8::1]", "an address has no certificate here"),
        ("https://example.org", "without scheme, port or path"),
        ("example.org:443", "without scheme, port or path"),
        ("exämple.org", "write it in ASCII"),
        ("example.org.", "it is not a host name"),
        ("-a.example.org", "it is not a host name"),
        ("a_b.example.org", "it is not a host name"),
        ("a.123", "it is not a host name"),
        ("", "it is not a host name"),
    ] {
        let found = messages(parse(&ordered(&format!("domains = [\"{domain}\"]"), "")));
        assert_eq!(found.len(), 1, "{domain}: {found:?}");
        assert!(found[0].contains(expected), "{domain}: {found:?}");
    }
    let twice = messages(parse(&ordered("domains = [\"a.test\", \"A.test\"]", "")));
    assert!(
        twice.len() == 1 && twice[0].contains("found \"A.test\" twice"),
        "{twice:?}"
    );
    let many: Vec<_> = (0..101)
        .map(|number| format!("\"n{number}.test\""))
        .collect();
    let found = messages(parse(&ordered(
        &format!("domains = [{}]", many.join(", ")),
        "",
    )));
    assert!(
        found.len() == 1 && found[0].contains("issue for no more names"),
        "{found:?}"
    );
}

#[test]
fn the_authority_is_reached_over_https() {
    for (acme, expected) in [
        (
            "directory = \"http://ca.test/dir\"",
            "ACME requires https://",
        ),
        ("contact = \"ops\"", "an email address such as"),
        ("contact = \"a@b?subject=c\"", "an email address such as"),
        (
            "eab_key_id = \"kid\"",
            "expected both tls.acme.eab_key_id and tls.acme.eab_key_file",
        ),
        (
            "eab_key_file = \"k\"",
            "expected both tls.acme.eab_key_id and tls.acme.eab_key_file",
        ),
        ("http_address = \"80\"", "found \"80\""),
        (
            "http_address = \"127.0.0.1:8080\"",
            "expected another address than",
        ),
    ] {
        let found = messages(parse(&ordered("domains = \"a.test\"", acme)));
        assert_eq!(found.len(), 1, "{acme}: {found:?}");
        assert!(found[0].contains(expected), "{acme}: {found:?}");
    }
    let refused = ordered("domains = \"a.test\"", "").replace("= true", "= false");
    let found = messages(parse(&refused));
    assert!(
        found[0].contains("read its terms of service first"),
        "{found:?}"
    );
    let contact = "contact = [\"ops@example.org\", \"mailto:b@example.org\"]";
    let acme = parse(&ordered("domains = \"a.test\"", contact))
        .unwrap()
        .acme
        .unwrap();
    assert_eq!(
        acme.contact,
        ["mailto:ops@example.org", "mailto:b@example.org"]
    );
}

#[test]
fn a_section_around_others_has_no_keys() {
    for (text, expected) in [
        ("[tls]\nfolder = \"x\"\n", "tls.folder: unknown key"),
        ("[tls.acne]\nfolder = \"x\"\n", "did you mean [tls.acme]?"),
        ("[gateway.acme]\n", "unknown section"),
    ] {
        let found = messages(parse(&format!("{LEAST}{text}")));
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{text}: {found:?}"
        );
    }
}
