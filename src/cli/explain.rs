//! `portcullis explain`: how the gateway or the relay would judge a request, check by check.
//!
//! Runs the policy itself, not a copy of it, on a request body from a file or standard input, and
//! says what the node would be sent. Nothing is sent, no limit is counted, and no secret is read;
//! what only the chain can tell is named.

use super::{CHECK_FAILED, ExplainArguments, USAGE};
use crate::config::{Config, RelayConfig};
use crate::gateway::Settings;
use crate::relay::settings::policy;
use crate::reply::status_and_code;
use portcullis_filters::bearer::Tokens;
use portcullis_filters::operation::OperationKind;
use portcullis_filters::policy::{
    Endpoint, Finding, GatewayPolicy, Inspected, MAX_BODY, RelayFinding,
};
use portcullis_filters::tx::AllowedCall;
use portcullis_filters::verdict::{ReadPermit, Refusal};
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

pub(super) fn run(arguments: &ExplainArguments) -> ExitCode {
    let config = match Config::load(&arguments.file.config, std::env::vars_os()) {
        Ok(config) => config,
        Err(error) => return usage(&error.to_string()),
    };
    let body = match read(&arguments.request) {
        Ok(body) => body,
        Err(error) => return usage(&format!("{}: {error}", arguments.request.display())),
    };
    let Some(path) = &arguments.relay else {
        let Some(config) = config.gateway else {
            return usage("the configuration has no [gateway]");
        };
        return gateway(&Settings::from(&config).policy, &body);
    };
    let Some(config) = config.relay else {
        return usage("the configuration has no [relay]");
    };
    let endpoint = match &**path {
        "/rpc" => Some(Endpoint::Rpc),
        path => OperationKind::parse_path(path.as_bytes()).map(Endpoint::Operation),
    };
    match endpoint {
        Some(endpoint) => relay(&config, endpoint, &body),
        None => usage(&format!("the relay takes no POST at {path}")),
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(USAGE)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // one byte more than is accepted tells that it is too large
    let bound = MAX_BODY as u64 + 1;
    let mut body = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(bound).read_to_end(&mut body)?;
    } else {
        std::fs::File::open(path)?.take(bound).read_to_end(&mut body)?;
    }
    Ok(body)
}

fn gateway(policy: &GatewayPolicy, body: &[u8]) -> ExitCode {
    println!("gateway, POST /rpc, {} bytes", body.len());
    let verdict = policy.inspect_with(body, |finding| match finding {
        Finding::Size(bytes) => passed("size", &format!("{bytes} of {MAX_BODY} bytes")),
        Finding::Envelope(id) => passed("envelope", &format!("JSON-RPC 2.0, id {id}")),
        Finding::Method(method) => passed("method", method),
        Finding::Params(count) => passed("params", &format!("{count} given")),
    });
    match verdict {
        Ok(permit) => {
            permitted(&permit);
            ExitCode::SUCCESS
        }
        Err(refusal) => refused(&refusal),
    }
}

fn permitted(permit: &ReadPermit<'_>) {
    for (name, argument) in permit.params().arguments() {
        detail(&format!("{name} = {argument:?}"));
    }
    let mut request = Vec::new();
    permit.write_request(1, &mut request);
    println!("\nverdict: permitted; the node is asked\n  {}", String::from_utf8_lossy(&request));
}

fn relay(config: &RelayConfig, endpoint: Endpoint, body: &[u8]) -> ExitCode {
    println!("relay, POST /{}, {} bytes", endpoint.name(), body.len());
    // whoever explains needs no token: none is compared here
    let policy = policy(config, Tokens::none());
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    match policy.inspect_with(endpoint, body, now, found) {
        Ok(Inspected::Transaction(unverified)) => {
            to_do("pins", "every pin proven within the last seconds");
            match unverified.sender() {
                Some(sender) => {
                    to_do("class", &format!("{sender} is of class {}", config.pins.account_class));
                    to_do("signature", &format!("by the key of {sender}, over the hash"));
                }
                None => passed("signature", "by the key that it brings, over the hash"),
            }
            to_do("journal", "the same hash again is answered, not sent");
            println!("\nverdict: permitted, if the chain agrees with what is marked ?");
            ExitCode::SUCCESS
        }
        Ok(Inspected::Operation(permit)) => {
            to_do("pins", "every pin proven within the last seconds");
            to_do("state", "neither done already nor impossible");
            println!("\nverdict: permitted, if the chain agrees; the journal gets\n  {}", {
                permit.canonical()
            });
            ExitCode::SUCCESS
        }
        Err(refusal) => refused(&refusal),
    }
}

fn found(finding: RelayFinding<'_>) {
    match finding {
        RelayFinding::Size(bytes) => passed("size", &format!("{bytes} of {MAX_BODY} bytes")),
        RelayFinding::Envelope(id) => passed("envelope", &format!("JSON-RPC 2.0, id {id}")),
        RelayFinding::Method(method) => passed("method", method),
        RelayFinding::Transaction(transaction) => {
            passed("transaction", "version 3, no tip, no paymaster, no proofs, DA on L1");
            detail(&format!("sender = {}", transaction.sender()));
            detail(&format!("nonce = {}", transaction.nonce()));
            let bounds = transaction.bounds();
            for (name, (amount, price)) in [
                ("l1_gas", bounds.l1_gas),
                ("l1_data_gas", bounds.l1_data_gas),
                ("l2_gas", bounds.l2_gas),
            ] {
                detail(&format!("{name} = {amount} at {price} fri"));
            }
        }
        RelayFinding::Calls(calls) => {
            passed("calls", &format!("{} on the list", calls.len()));
            calls.iter().for_each(call);
        }
        RelayFinding::Hash(hash) => passed("hash", &hash.to_string()),
        RelayFinding::Operation(operation) => {
            passed("operation", operation.kind().name());
            detail(&operation.canonical());
        }
    }
}

fn call(call: &AllowedCall) {
    let (contract, entrypoint) = (call.contract().name(), call.entrypoint().name());
    let args: Vec<_> = call.call().args.iter().map(ToString::to_string).collect();
    detail(&format!("{contract}.{entrypoint}({})", args.join(", ")));
}

fn refused(refusal: &Refusal) -> ExitCode {
    let (status, code) = status_and_code(refusal.reason);
    println!("  refused  {}: {}", refusal.reason.name(), refusal.message);
    println!("\nverdict: HTTP {status}, JSON-RPC {code}; the node is not asked");
    ExitCode::from(CHECK_FAILED)
}

fn passed(check: &str, what: &str) {
    println!("  ok       {check}: {what}");
}

fn to_do(check: &str, what: &str) {
    println!("  ?        {check}: {what}");
}

fn detail(text: &str) {
    println!("             {text}");
}
