//! The documents hold what the program has: every path, every method, every reason, no other.

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use portcullis_base::telemetry::Surface;
use portcullis_documents::DOCUMENTS;
use portcullis_edge::reply::Reply;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{Endpoint, Function};
use portcullis_filters::rpc::Method;
use portcullis_filters::verdict::{Api, Reason};
use portcullis_program::admin::documents::Documents;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn document(path: &str) -> Value {
    let document = DOCUMENTS
        .as_flattened()
        .iter()
        .find(|document| document.path == path);
    let text = document.expect("a document of this path").text;
    serde_json::from_str(text).expect("the build script writes JSON")
}

fn openapi(surface: &str) -> Value {
    document(&format!("/docs/openapi/{surface}.json"))
}

/// The response of a process whose surfaces listen on sockets of their names, without a sidecar.
fn reply(path: &[u8]) -> Option<Reply> {
    let listens = |surface: Surface| {
        (surface != Surface::Sidecar).then(|| format!("unix:/run/<{}>", surface.name()))
    };
    Documents::new(listens).reply(path)
}

/// The page of all documents.
fn page() -> String {
    let reply = reply(b"/docs").expect("the page is served");
    String::from_utf8(reply.body.pieces().concat()).expect("the page is text")
}

fn reasons_of(api: Api) -> impl Iterator<Item = Reason> {
    Reason::ALL
        .into_iter()
        .filter(move |reason| reason.is_of(api))
}

/// The node, or the node that it refers to.
fn follow<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    let to = node["$ref"]
        .as_str()
        .and_then(|to| root.pointer(to.trim_start_matches('#')));
    to.unwrap_or(node)
}

/// Each status with the answers that have it, of all operations and of any other request.
fn answers(root: &Value) -> Vec<(u16, &Value)> {
    let operations = root["paths"].as_object().expect("paths").values();
    let operations = operations.flat_map(|path| path.as_object().expect("methods").values());
    let all = operations.chain([&root["x-any-request"]]);
    let responses = all.flat_map(|of| of["responses"].as_object().expect("responses"));
    let parsed = responses.map(|(status, response)| {
        (
            status.parse().expect("a status is a number"),
            follow(root, response),
        )
    });
    parsed.collect()
}

/// Every schema of one member: in these schemas, in their parts, and where they refer to.
fn member<'a>(root: &'a Value, schemas: &[&'a Value], name: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    for schema in schemas {
        let schema = follow(root, schema);
        found.extend(schema["properties"].get(name));
        let parts: Vec<_> = schema["allOf"].as_array().into_iter().flatten().collect();
        found.extend(member(root, &parts, name));
    }
    found
}

/// The values that these schemas permit, if they list them.
fn listed<'a>(schemas: &[&'a Value]) -> Vec<&'a Value> {
    let lists = schemas
        .iter()
        .filter_map(|schema| schema["enum"].as_array());
    lists.flatten().collect()
}

/// The reasons that a schema names, each with its JSON-RPC code where it has one.
fn named<'a>(root: &'a Value, schema: &'a Value, found: &mut BTreeSet<(String, Option<i64>)>) {
    let schema = follow(root, schema);
    for list in ["oneOf", "anyOf"] {
        for one in schema[list].as_array().into_iter().flatten() {
            named(root, one, found);
        }
    }
    let errors = member(root, &[schema], "error");
    let codes = listed(&member(root, &errors, "code"));
    let code = codes.first().and_then(|code| code.as_i64());
    let data = member(root, &errors, "data");
    let reasons = [
        member(root, &errors, "reason"),
        member(root, &data, "reason"),
    ];
    for name in [listed(&errors), listed(&reasons.concat())].concat() {
        let name = name.as_str().expect("a name is a text");
        found.insert((name.to_owned(), code));
    }
}

/// Every status, name and code in a document.
fn documented(root: &Value) -> BTreeSet<(u16, String, Option<i64>)> {
    let mut all = BTreeSet::new();
    for (status, response) in answers(root) {
        let mut found = BTreeSet::new();
        for content in response["content"].as_object().into_iter().flatten() {
            named(root, &content.1["schema"], &mut found);
        }
        all.extend(found.into_iter().map(|(name, code)| (status, name, code)));
    }
    all
}

#[test]
fn every_reason_of_the_gateway_stands_in_its_document_with_its_status_and_code() {
    let expected: BTreeSet<_> = reasons_of(Api::Gateway)
        .map(|reason| {
            let code = Some(i64::from(reason.code()));
            (reason.status(), reason.name().to_owned(), code)
        })
        .collect();
    assert_eq!(documented(&openapi("gateway")), expected);
}

#[test]
fn every_reason_of_the_relay_stands_in_its_document_with_its_status_and_code() {
    let documented = documented(&openapi("relay"));
    let names: BTreeSet<_> = documented.iter().map(|row| row.1.as_str()).collect();
    assert_eq!(
        names,
        reasons_of(Api::Relay).map(Reason::name).collect(),
        "no other, and none is missing"
    );
    for (status, name, code) in &documented {
        let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name);
        let reason = reason.expect("checked just before");
        assert_eq!(*status, reason.status(), "{name}");
        assert!(
            code.is_none_or(|code| code == i64::from(reason.code())),
            "{name}: {code:?}"
        );
    }
}

#[test]
fn every_name_of_the_sidecar_stands_in_its_document_with_its_status() {
    let documented = documented(&openapi("sidecar"))
        .into_iter()
        .map(|(status, name, _)| (status, name));
    let expected =
        reasons_of(Api::Sidecar).map(|reason| (reason.status(), reason.xrpc_name().to_owned()));
    assert_eq!(documented.collect::<BTreeSet<_>>(), expected.collect());
}

/// The JSON-RPC codes of the methods' document stand for reasons.
#[test]
fn every_reason_of_the_gateway_stands_among_the_errors_of_its_methods() {
    let root = document("/docs/openrpc/gateway.json");
    let mut documented = BTreeMap::new();
    for error in root["components"]["errors"]
        .as_object()
        .expect("errors")
        .values()
    {
        for reason in error["data"]["reason"].as_array().into_iter().flatten() {
            documented.insert(
                reason.as_str().expect("a name").to_owned(),
                error["code"].as_i64(),
            );
        }
    }
    let code = |reason: Reason| Some(i64::from(reason.code()));
    let expected = reasons_of(Api::Gateway).map(|reason| (reason.name().to_owned(), code(reason)));
    assert_eq!(documented, expected.collect());
}

#[test]
fn the_thirteen_methods_are_those_of_the_documents_in_their_order() {
    let names = |list: &Value, member: &str| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        let name = |one: &Value| {
            if member.is_empty() {
                one.clone()
            } else {
                one[member].clone()
            }
        };
        list.map(|one| name(one).as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let expected: Vec<_> = Method::ALL.map(|method| method.name().to_owned()).into();
    let methods = document("/docs/openrpc/gateway.json")["methods"].clone();
    assert_eq!(names(&methods, "name"), expected);
    let listed = openapi("gateway")["components"]["schemas"]["Method"]["enum"].clone();
    assert_eq!(names(&listed, ""), expected);
}

fn paths(surface: &str) -> BTreeSet<String> {
    let root = openapi(surface);
    root["paths"]
        .as_object()
        .expect("paths")
        .keys()
        .cloned()
        .collect()
}

#[test]
fn every_operation_of_the_relay_and_every_function_of_the_sidecar_has_its_path() {
    let endpoints = [Endpoint::Ready, Endpoint::Rpc].map(|one| format!("/{}", one.name()));
    let operations = OperationKind::ALL.map(|kind| kind.path());
    let health = "/healthz".to_owned();
    let relay = endpoints
        .into_iter()
        .chain(operations)
        .chain([health.clone()])
        .collect();
    assert_eq!(paths("relay"), relay);
    let documents = ["/docs", "/docs/{folder}/{document}"].map(str::to_owned);
    let gateway = documents
        .into_iter()
        .chain(["/rpc".to_owned(), health])
        .collect();
    assert_eq!(paths("gateway"), gateway);
    let sidecar = paths("sidecar");
    for function in Function::ALL
        .into_iter()
        .filter(|one| !matches!(one, Function::DidDocument | Function::XrpcHealth))
    {
        assert!(
            sidecar.contains(&format!("/functions/{}", function.name())),
            "{function:?}"
        );
    }
}

/// Each document stands for itself, and all agree about the parts that they share.
#[test]
fn a_header_of_one_name_is_the_same_in_each_document() {
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    for surface in ["gateway", "relay", "sidecar", "admin"] {
        let headers = openapi(surface)["components"]["headers"].clone();
        for (name, header) in headers.as_object().expect("headers") {
            // what each surface says of its own
            if matches!(name.as_str(), "NoStore" | "Allow" | "Bearer") {
                continue;
            }
            let first = known.entry(name.clone()).or_insert_with(|| header.clone());
            assert_eq!(first, header, "{surface}: {name}");
        }
    }
}

#[test]
fn the_page_shows_every_path_and_method_and_every_link_on_it_leads_somewhere() {
    let page = page();
    for surface in ["gateway", "relay", "sidecar", "admin"] {
        for path in paths(surface) {
            assert!(
                page.contains(&format!("<code>{path}</code>")),
                "{surface}: {path}"
            );
        }
    }
    for method in Method::ALL {
        assert!(
            page.contains(&format!("<code>{}</code>", method.name())),
            "{method:?}"
        );
    }
    for reason in Reason::ALL
        .into_iter()
        .filter(|reason| reason.is_of(Api::Gateway) || reason.is_of(Api::Relay))
    {
        assert!(
            page.contains(&format!("<code>{}</code>", reason.name())),
            "{reason:?}"
        );
    }
    let ids: Vec<_> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert_eq!(
        ids.len(),
        ids.iter().collect::<BTreeSet<_>>().len(),
        "an anchor is one place"
    );
    for link in page
        .split(" href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        let leads = match link.strip_prefix('#') {
            Some(anchor) => ids.contains(&anchor),
            None => link == "/" || reply(link.as_bytes()).is_some(),
        };
        assert!(leads, "{link} leads nowhere");
    }
}

#[test]
fn the_page_says_where_each_surface_listens() {
    let page = page();
    for surface in ["gateway", "relay", "admin"] {
        let listens = format!("Listens on <code>unix:/run/&lt;{surface}></code>.");
        assert!(page.contains(&listens), "{surface}");
    }
    assert_eq!(
        page.matches("Not configured in this process.").count(),
        1,
        "the sidecar is off"
    );
    assert!(
        !page.contains("[[") && page.contains("href=\"/\""),
        "it leads back"
    );
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = page();
    let style = page
        .split_once("<style>")
        .and_then(|(_, rest)| rest.split_once("</style>"));
    let digest = BASE64_STANDARD.encode(Sha256::digest(style.expect("the page has a style").0));
    let fields = reply(b"/docs").expect("the page is served").fields;
    let allowed = format!("style-src 'sha256-{digest}'");
    assert!(
        fields
            .iter()
            .any(|(_, value)| value.to_str().is_ok_and(|text| text.contains(&allowed))),
        "{fields:?} name its style"
    );
    for word in [
        "<script",
        "<img",
        "<link",
        "url(",
        "@import",
        " src=",
        " style=",
        "http-equiv",
    ] {
        assert!(
            !page.contains(word),
            "{word} would be stopped by the page's own policy"
        );
    }
}

/// The first reference below a node that leads nowhere.
fn broken<'a>(root: &Value, node: &'a Value) -> Option<&'a str> {
    let own = node["$ref"].as_str().filter(|to| to.starts_with("#/"));
    let below = node
        .as_object()
        .into_iter()
        .flat_map(|members| members.values());
    let mut below = below.chain(node.as_array().into_iter().flatten());
    own.filter(|to| root.pointer(&to[1..]).is_none())
        .or_else(|| below.find_map(|member| broken(root, member)))
}

#[test]
fn every_reference_in_a_document_leads_somewhere() {
    for path in DOCUMENTS
        .as_flattened()
        .iter()
        .map(|document| document.path)
        .filter(|path| path.ends_with(".json"))
    {
        let root = document(path);
        assert_eq!(broken(&root, &root), None, "{path}");
    }
}
