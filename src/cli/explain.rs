//! `portcullis explain`: how the gateway would judge a request, check by check.
//!
//! Runs the policy itself, not a copy of it, on a request body from a file or standard input, and
//! says what the node would be sent. Nothing is sent, and no limit is counted.

use super::{CHECK_FAILED, ExplainArguments, USAGE};
use crate::config::Config;
use crate::gateway::Settings;
use portcullis_filters::policy::{Finding, GatewayPolicy, MAX_BODY};
use portcullis_filters::verdict::ReadPermit;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(arguments: &ExplainArguments) -> ExitCode {
    let config = match Config::load(&arguments.file.config, std::env::vars_os()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    let Some(config) = config.gateway else {
        eprintln!("the configuration has no [gateway]");
        return ExitCode::from(USAGE);
    };
    let body = match read(&arguments.request) {
        Ok(body) => body,
        Err(error) => {
            eprintln!("{}: {error}", arguments.request.display());
            return ExitCode::from(USAGE);
        }
    };
    explain(&Settings::from(&config).policy, &body)
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

fn explain(policy: &GatewayPolicy, body: &[u8]) -> ExitCode {
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
        Err(refusal) => {
            let (status, code) = crate::reply::status_and_code(refusal.reason);
            println!("  refused  {}: {}", refusal.reason.name(), refusal.message);
            println!("\nverdict: HTTP {status}, JSON-RPC {code}; the node is not asked");
            ExitCode::from(CHECK_FAILED)
        }
    }
}

fn passed(check: &str, what: &str) {
    println!("  ok       {check}: {what}");
}

fn permitted(permit: &ReadPermit<'_>) {
    for (name, argument) in permit.params().arguments() {
        println!("             {name} = {argument:?}");
    }
    let mut request = Vec::new();
    permit.write_request(1, &mut request);
    println!("\nverdict: permitted; the node is asked\n  {}", String::from_utf8_lossy(&request));
}
