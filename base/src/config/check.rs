//! Checks of the whole configuration: defaults that depend on other keys, and keys that conflict.

use super::acme;
use super::error::Origin;
use super::reader::Reader;
use super::sidecar::is_open_to_others;
use super::{
    AcmeConfig, AdminConfig, Config, FleetConfig, GatewayConfig, LogConfig, MIN_ANSWER_MEMORY,
    NodeConfig, RelayConfig, SecretsLive, ServerConfig, SidecarConfig, StoreConfig, StoreTls,
    TraceConfig,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::networks::canonical;

/// Reads every section. A surface whose section is left out is switched off.
pub(super) fn config(reader: &mut Reader<'_>) -> Config {
    let mut config = Config {
        server: ServerConfig::read(reader),
        log: LogConfig::read(reader),
        secrets: SecretsLive::read(&mut reader.live()),
        node: NodeConfig::read(reader),
        gateway: reader.has("gateway").then(|| GatewayConfig::read(reader)),
        relay: reader.has("relay").then(|| RelayConfig::read(reader)),
        sidecar: reader.has("sidecar").then(|| SidecarConfig::read(reader)),
        store: (reader.has("relay") || reader.has("sidecar")).then(|| StoreConfig::read(reader)),
        fleet: reader.has("fleet").then(|| FleetConfig::read(reader)),
        trace: reader.has("trace").then(|| TraceConfig::read(reader)),
        admin: reader.has("admin").then(|| AdminConfig::read(reader)),
        acme: reader.has("tls.acme").then(|| AcmeConfig::read(reader)),
        values: reader.texts(),
        warnings: Vec::new(),
    };
    if let Some(sidecar) = &mut config.sidecar {
        sidecar.live.fill_dids();
    }
    if let Some(RelayConfig { pins, .. }) = &mut config.relay
        && pins.faucet == Felt::ZERO
    {
        pins.faucet = pins.owner;
    }
    if let Some(trace) = &mut config.trace
        && !reader.is_set("trace.service_name")
    {
        trace.take_name_of_attributes();
    }
    acme::certificates(&mut config, reader);
    listeners(&config, reader);
    memory(&config, reader);
    balancers(&config, reader);
    config
        .gateway
        .iter()
        .for_each(|gateway| blocked(gateway, reader));
    config.store.iter().for_each(|config| store(config, reader));
    config.admin.iter().for_each(|admin| token(admin, reader));
    config
        .relay
        .iter()
        .for_each(|relay| accounts(relay, reader));
    config
        .sidecar
        .iter()
        .for_each(|sidecar| trusted_keys(sidecar, reader));
    chain_id(&config, reader);
    config
}

fn chain_id(config: &Config, reader: &mut Reader<'_>) {
    if let Some((relay, id)) = config.relay.as_ref().zip(config.node.chain_id)
        && id.to_short_string().as_deref() != Some(&*relay.pins.chain_id)
    {
        let message = format!("expected node.chain_id, found {:?}", relay.pins.chain_id);
        reader.conflict("relay.pins.chain_id", "node.chain_id", message);
    }
}

fn listeners(config: &Config, reader: &mut Reader<'_>) {
    let listeners: Vec<_> = config.listeners().collect();
    if listeners.iter().all(|(key, _)| !key.ends_with(".listen")) {
        let message = "expected [gateway], [relay], [sidecar] or [admin]: without them \
                       nothing is served";
        reader.report("gateway", Origin::Absent, message.to_owned());
    }
    for (at, (other, taken)) in listeners.iter().enumerate() {
        for (key, listen) in listeners.iter().skip(at + 1) {
            if taken.collides(listen) {
                let message =
                    format!("expected another address than {other} ({taken}), found {listen}");
                reader.conflict(key, other, message);
            }
        }
    }
}

fn memory(config: &Config, reader: &mut Reader<'_>) {
    let memory = config.server.answer_memory;
    let Some(GatewayConfig { cache, live, .. }) = &config.gateway else {
        return;
    };
    if live.cache.enabled
        && cache.size.bytes().saturating_add(MIN_ANSWER_MEMORY.bytes()) > memory.bytes()
    {
        let message = format!(
            "expected at most server.answer_memory ({memory}) minus {MIN_ANSWER_MEMORY}, which one \
             answer may need when the cache is full, found {}",
            cache.size
        );
        reader.conflict("gateway.cache.size", "server.answer_memory", message);
    }
}

fn balancers(config: &Config, reader: &mut Reader<'_>) {
    for (section, clients, live) in config.clients() {
        if clients.proxy_protocol && live.trusted_proxies.is_empty() {
            let proxies = reader.key(&format!("{section}.trusted_proxies"));
            let message = format!("expected false, or the balancer in {proxies}");
            let key = reader.key(&format!("{section}.proxy_protocol"));
            reader.conflict(key, proxies, message);
        }
    }
}

/// Warns of networks that have limits, or none, and are refused all the same.
fn blocked(gateway: &GatewayConfig, reader: &mut Reader<'_>) {
    let live = &gateway.live;
    let own = live.networks.iter().flat_map(|limits| &limits.networks);
    let exempt = live
        .exempt
        .iter()
        .map(|network| ("gateway.exempt", network));
    for (key, network) in exempt.chain(own.map(|network| ("gateway.clients", network))) {
        let network = canonical(*network);
        let mut blocked = live.blocked.iter().map(|blocked| canonical(*blocked));
        if let Some(around) = blocked.find(|blocked| blocked.contains(&network)) {
            let message = format!("{network} has no effect: gateway.blocked has {around}");
            reader.warn(key, message);
        }
    }
}

fn store(store: &StoreConfig, reader: &mut Reader<'_>) {
    if store.tls == StoreTls::VerifyFull && store.is_for_one() {
        let message = "expected \"off\": SQLite is a file";
        reader.conflict("store.tls", "store.url", message.to_owned());
    }
    if store.read_url.is_some() && store.is_for_one() {
        let message = "expected \"\": SQLite is a file, and has no replica";
        reader.conflict("store.read_url", "store.url", message.to_owned());
    }
    if store.tls == StoreTls::Off && store.ca_file.is_some() {
        let message = "expected \"\", or store.tls = \"verify-full\"";
        reader.conflict("store.ca_file", "store.tls", message.to_owned());
    }
}

fn token(admin: &AdminConfig, reader: &mut Reader<'_>) {
    if admin.live.token_file.is_none() && !admin.listen.is_local() {
        let message = format!(
            "expected a loopback address or a Unix socket, found {}; any other address requires \
             admin.token_file",
            admin.listen
        );
        reader.conflict("admin.listen", "admin.token_file", message);
    }
}

/// Warns of keys for sessions and tokens that are fetched over http:// from another machine.
fn trusted_keys(sidecar: &SidecarConfig, reader: &mut Reader<'_>) {
    let session = &sidecar.live.session;
    for (key, url) in [
        ("sidecar.session.jwks_url", session.jwks_url.as_deref()),
        ("sidecar.session.plc_url", Some(&*session.plc_url)),
    ] {
        if url.is_some_and(is_open_to_others) {
            let message = "use https://: over http:// anyone on the path can answer with keys of \
                           their own, and sign in as any user";
            reader.warn(key, message.to_owned());
        }
    }
}

fn accounts(relay: &RelayConfig, reader: &mut Reader<'_>) {
    let RelayConfig {
        pins, keys, live, ..
    } = relay;
    let policy = &live.policy;
    if pins.owner == pins.verifier {
        let message = "expected another account than relay.pins.owner: the owner of the registry \
                       must not attest";
        reader.conflict(
            "relay.pins.verifier",
            "relay.pins.owner",
            message.to_owned(),
        );
    }
    if keys.owner_file == keys.verifier_file {
        let message = "expected another file than relay.keys.owner_file: the keys must differ";
        reader.conflict(
            "relay.keys.verifier_file",
            "relay.keys.owner_file",
            message.to_owned(),
        );
    }
    faucet(relay, reader);
    if live.events.url.is_some() && live.events.secret_file.is_none() {
        let message = "expected a file: events are signed";
        reader.conflict(
            "relay.events.secret_file",
            "relay.events.url",
            message.to_owned(),
        );
    }
    if policy.usership_first_epoch > policy.usership_last_epoch {
        let message = format!(
            "expected at least relay.policy.usership_first_epoch ({}), found {}",
            policy.usership_first_epoch, policy.usership_last_epoch
        );
        let keys = [
            "relay.policy.usership_last_epoch",
            "relay.policy.usership_first_epoch",
        ];
        reader.conflict(keys[0], keys[1], message);
    }
}

/// Checks the faucet's account and key. An account has one queue: if it had two roles, it would
/// have two queues.
fn faucet(relay: &RelayConfig, reader: &mut Reader<'_>) {
    let RelayConfig { pins, keys, .. } = relay;
    if pins.faucet == pins.verifier {
        let message = "expected another account than relay.pins.verifier: an account has one queue \
                       and one role; \"\" is the owner";
        reader.conflict(
            "relay.pins.faucet",
            "relay.pins.verifier",
            message.to_owned(),
        );
    }
    if (pins.faucet == pins.owner) != keys.faucet_file.is_none() {
        let message = "expected both relay.pins.faucet, another account than relay.pins.owner, and \
                       relay.keys.faucet_file, or neither";
        reader.conflict(
            "relay.keys.faucet_file",
            "relay.pins.faucet",
            message.to_owned(),
        );
    }
    for (key, file) in [
        ("relay.keys.owner_file", &keys.owner_file),
        ("relay.keys.verifier_file", &keys.verifier_file),
    ] {
        if keys.faucet_file.as_ref() == Some(file) {
            let message = format!("expected another file than {key}: the keys must differ");
            reader.conflict("relay.keys.faucet_file", key, message);
        }
    }
}
