//! The slots of a cluster: which server holds a key. Pure.
//!
//! From the Redis Cluster specification, "Key distribution model". A server that is no cluster
//! holds all slots.

use portcullis_base::config::FleetServer;
use redis::{FromRedisValue as _, Value};

/// The number of slots.
const SLOTS: u16 = 16_384;

/// A slot: a part of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u16);

impl Slot {
    const LAST: Self = Self(SLOTS - 1);

    /// The slot of a key: of the part in its first braces, if it has one.
    pub(super) fn of(key: &str) -> Self {
        let tag = key
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .map(|(tag, _)| tag)
            .filter(|tag| !tag.is_empty());
        Self(crc16(tag.unwrap_or(key).as_bytes()) % SLOTS)
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    crc
}

/// The slots from `first` to `last`, and the server that holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    first: Slot,
    last: Slot,
    pub(super) server: FleetServer,
}

impl SlotRange {
    /// All slots.
    pub(super) fn all(server: FleetServer) -> Self {
        Self {
            first: Slot(0),
            last: Slot::LAST,
            server,
        }
    }

    pub(super) fn holds(&self, slot: Slot) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

/// Reads the answer to `CLUSTER SLOTS`: the primary of each range. A server without a name is
/// `asked`, the one that answered. `None` if it is not such an answer.
pub(super) fn parse(answer: Value, asked: &FleetServer) -> Option<Vec<SlotRange>> {
    let rows = Vec::<Vec<Value>>::from_redis_value(answer).ok()?;
    rows.into_iter().map(|row| range(row, asked)).collect()
}

fn range(row: Vec<Value>, asked: &FleetServer) -> Option<SlotRange> {
    let mut row = row.into_iter();
    let [first, last, primary] = [row.next()?, row.next()?, row.next()?];
    let [first, last] = [slot(first)?, slot(last)?];
    let mut primary = Vec::<Value>::from_redis_value(primary).ok()?.into_iter();
    let host = Option::<String>::from_redis_value(primary.next()?).ok()?;
    let port = u16::from_redis_value(primary.next()?).ok()?;
    let server = match (host, asked) {
        (Some(host), _) if !host.is_empty() && host != "?" => FleetServer::Tcp(host, port),
        (_, FleetServer::Tcp(host, _)) => FleetServer::Tcp(host.clone(), port),
        (_, FleetServer::Unix(_)) => asked.clone(),
    };
    Some(SlotRange {
        first,
        last,
        server,
    })
}

fn slot(value: Value) -> Option<Slot> {
    let number = u16::from_redis_value(value).ok()?;
    if number < SLOTS {
        Some(Slot(number))
    } else {
        None
    }
}

/// Whether each slot is in one of these ranges.
pub(super) fn are_complete(ranges: &[SlotRange]) -> bool {
    let sizes = ranges
        .iter()
        .map(|range| usize::from(range.last.0.saturating_sub(range.first.0)) + 1);
    sizes.sum::<usize>() >= usize::from(SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_key_has_the_slot_of_its_tag() {
        // from the specification, and of CLUSTER KEYSLOT
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("bar{hash_tag}", 2_515),
            ("{user1000}.following", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
        ] {
            assert_eq!(Slot::of(key), Slot(slot), "{key}");
        }
    }

    #[test]
    fn the_primary_of_each_range_is_read() {
        let asked = FleetServer::Tcp("10.0.0.1".to_owned(), 7000);
        let primary = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let row = |first, last, primary| {
            let replica = Value::Array(vec![text("10.0.0.9"), Value::Int(1), text("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
        };
        let answer = Value::Array(vec![
            row(0, 5_460, primary(text("10.0.0.2"), 7001)),
            row(5_461, 10_922, primary(text(""), 7000)),
            row(10_923, 16_383, primary(Value::Nil, 7002)),
        ]);
        let found = parse(answer, &asked).unwrap();
        let servers: Vec<_> = found.iter().map(|row| row.server.to_string()).collect();
        assert_eq!(servers, ["10.0.0.2:7001", "10.0.0.1:7000", "10.0.0.1:7002"]);
        assert!(are_complete(&found) && !are_complete(&found[1..]));
        assert!(found[1].holds(Slot(5_461)) && !found[1].holds(Slot(10_923)));
        let wrong = Value::Array(vec![row(0, 16_384, primary(text("a"), 1))]);
        assert_eq!(parse(wrong, &asked), None);
        assert_eq!(parse(Value::Okay, &asked), None);
    }
}
