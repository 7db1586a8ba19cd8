//! A drip from the relay, repeated until its outcome is known; README.md next to this file has the rule.
//!
//! Arguments: identity, recipient, public key. RELAY and TOKEN_FILE are in the environment.

use std::error::Error;
use std::time::Duration;
use std::{env, fs, thread};

use serde_json::{Value, json};
use ureq::Agent;

/// After this many attempts the last answer stands.
const ATTEMPTS: u32 = 30;
/// A longer `Retry-After` is left to the caller.
const PATIENCE: u64 = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [identity, recipient, public_key] = arguments.as_slice() else {
        return Err("usage: drip IDENTITY RECIPIENT PUBLIC_KEY".into());
    };
    let body = json!({"identity": identity, "recipient": recipient, "public_key": public_key});
    let (status, answer) = outcome("/faucet-drip", &body, &format!("welcome-{identity}"))?;
    let said = match status {
        200 | 202 => &answer["transaction_hash"],
        _ => &answer["error"]["reason"],
    };
    println!("{status} {}", said.as_str().unwrap_or_default());
    Ok(())
}

/// Sends an operation with its key until the answer is final.
fn outcome(path: &str, body: &Value, key: &str) -> Result<(u16, Value), Box<dyn Error>> {
    let relay = env::var("RELAY").unwrap_or_else(|_| "http://127.0.0.1:8081".to_owned());
    let file = env::var("TOKEN_FILE").unwrap_or_else(|_| ".portcullis/relay.token".to_owned());
    let token = fs::read_to_string(file)?;
    let config = Agent::config_builder().http_status_as_error(false);
    let agent: Agent = config.build().into();
    let mut attempt = 1;
    loop {
        let request = agent
            .post(format!("{relay}{path}"))
            .header("Authorization", format!("Bearer {}", token.trim()))
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key);
        let mut answer = request.send(body.to_string())?;
        let status = answer.status().as_u16();
        let after = answer.headers().get("Retry-After");
        let after = after.and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = match (status, after) {
            (202 | 504, None) => 1,
            (_, Some(seconds)) if seconds <= PATIENCE => seconds,
            _ => 0,
        };
        if wait == 0 || attempt == ATTEMPTS {
            let text = answer.body_mut().read_to_string()?;
            return Ok((status, serde_json::from_str(&text)?));
        }
        attempt += 1;
        thread::sleep(Duration::from_secs(wait));
    }
}
