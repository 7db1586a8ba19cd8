//! Runs the store's script and its simulation on the same random histories, and compares them.

use super::script::{Call, Held, Record};
use super::toolkit::{Chance, Outcome, explore};
use redis::{Connection, Script};
use std::cell::RefCell;
use std::collections::BTreeMap;

const START: u64 = 2_000_000_000;

/// The script, with the time as an argument.
fn script() -> Script {
    let text = include_str!("lease.lua");
    let timed = text.replace(
        "local clock = redis.call('TIME')",
        "local clock = { math.floor(ARGV[11] / 1000), ARGV[11] % 1000 * 1000 }",
    );
    assert_ne!(timed, text, "the script reads its clock in one place");
    Script::new(&timed)
}

/// Reads a client's record from the store.
fn stored(connection: &mut Connection, key: &str) -> Record {
    let fields: BTreeMap<String, String> = redis::cmd("HGETALL")
        .arg(key)
        .query(connection)
        .expect("the store answers");
    let number = |digits: &str| digits.parse::<u64>().expect("a number");
    let mut record = Record::default();
    for (field, value) in &fields {
        if let Some(holder) = field.strip_prefix('L') {
            let numbers: Vec<u64> = value.split(':').map(number).collect();
            let held = Held {
                number: numbers[0],
                granted: numbers[1],
                expires: numbers[2],
            };
            record.leases.insert(holder.to_owned(), held);
        } else if field == "t" {
            record.newest = Some(number(value));
        } else {
            record.cells.insert(number(field), number(value));
        }
    }
    record
}

/// A call that an instance might send, or a late or repeated one.
fn call(chance: &mut Chance, numbers: &mut [u64; 3]) -> Call {
    let holder = chance.choose(3) as usize;
    numbers[holder] += 1;
    let number = numbers[holder] - chance.pick(&[0, 0, 0, 0, 1, 2]).min(numbers[holder]);
    let acknowledged = number.saturating_sub(chance.pick(&[9, 9, 1, 2]));
    let mut uses = String::new();
    for _ in 0..chance.choose(3) {
        let sent = number.saturating_sub(u64::from(chance.choose(3)));
        let age = chance.pick(&[0, 40, 999, 5_000, 59_500, 61_200]);
        uses += &format!("{sent}:{age}:{};", 1 + chance.choose(9));
    }
    Call {
        holder: format!("i{holder}:0"),
        number,
        acknowledged,
        quota: chance.pick(&[40, 7, 180]),
        window: 60_000,
        cell: 1_000,
        life: chance.pick(&[30_000, 5_001]),
        want: chance.pick(&[16, 1, 0]),
        hold: chance.pick(&[0, 0, 3, 12]),
        uses,
    }
}

fn send(connection: &mut Connection, key: &str, clock: u64, call: &Call) -> [i64; 4] {
    let script = script();
    let mut sent = script.key(key);
    sent.arg(&call.holder);
    for number in [
        call.number,
        call.acknowledged,
        call.quota,
        call.window,
        call.cell,
        call.life,
    ] {
        sent.arg(number);
    }
    sent.arg(call.want)
        .arg(call.hold)
        .arg(&call.uses)
        .arg(clock);
    sent.invoke(connection).expect("the store answers")
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn the_script_steps_as_it_is_simulated() {
    let client = redis::Client::open(super::tests::url()).expect("a URL");
    let connection = RefCell::new(client.get_connection().expect("the store answers"));
    let runs = RefCell::new(0);
    let found = explore(0..48, |chance| {
        *runs.borrow_mut() += 1;
        let key = format!("{}:{}", super::tests::name(), runs.borrow());
        let mut record = Record::default();
        let mut numbers = [0; 3];
        let mut clock = START;
        let mut outcome = Outcome::default();
        for _ in 0..60 {
            clock += chance.pick(&[10, 400, 1_000, 7_000, 45_000]);
            clock -= chance.pick(&[0, 0, 0, 0, 0, 0, 3_000, 90_000]);
            let call = call(chance, &mut numbers);
            let simulated = record.step(clock, &call);
            let answered = send(&mut connection.borrow_mut(), &key, clock, &call);
            outcome
                .trace
                .push(format!("{clock} {call:?}: {answered:?}"));
            let stored = stored(&mut connection.borrow_mut(), &key);
            if (answered, &stored) != (simulated, &record) {
                let violation = format!("{answered:?} {stored:?}, not {simulated:?} {record:?}");
                outcome.violation = Some(violation);
                break;
            }
        }
        outcome
    });
    if let Err(failure) = found {
        panic!("{failure}");
    }
}
