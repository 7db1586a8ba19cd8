//! The authority: right, or wrong in one way for a while. An order keeps the way of its birth.

use super::documents::{Fields, Mutation, WAYS};
use portcullis_filters::acme::{Certificate, Challenge, OrderStatus};
use portcullis_filters::certificate::Validity;
use portcullis_filters::chance::Chance as Drawn;
use std::rc::Rc;

pub(super) const DAY: u64 = 86_400;
pub(super) const DOMAINS: [&str; 2] = ["rpc.edge.test", "www.edge.test"];

/// A kind of document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Order,
    Authorization,
    Problem,
    RenewalInfo,
}

const KINDS: [Kind; 5] = [
    Kind::Directory,
    Kind::Order,
    Kind::Authorization,
    Kind::Problem,
    Kind::RenewalInfo,
];

/// How the authority behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Right,
    Down,
    /// It refuses everything with this problem, status and `Retry-After`.
    Refuses(&'static str, u16, Option<u64>),
    /// Documents of a kind are mutated.
    Mutates(Kind, Mutation),
    /// New orders have this flaw.
    Flawed(Flaw),
    /// It has no order that is older than this mode.
    Forgets,
    /// It has no account.
    ForgetsAccount,
    /// A new order has no URL.
    NoLocation,
    /// It wants each certificate renewed at once, or never.
    WindowPast,
    WindowFar,
    WindowReversed,
}

/// What is wrong with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    StaysPending,
    StaysProcessing,
    /// It is processing for some polls, with this `Retry-After`.
    Slow(u64),
    Invalid,
    NoDownload,
    ForeignDomain,
    NoChallenge,
    OtherKey,
    NoCertificate,
    OtherNames,
    FewerNames,
    Future,
    Expired,
    LargeChain,
    /// It is due when it arrives.
    Short,
    /// It is valid for longer than anything should be.
    Endless,
}

const FLAWS: [Flaw; 19] = [
    Flaw::StaysPending,
    Flaw::StaysProcessing,
    Flaw::Slow(1),
    Flaw::Slow(20),
    Flaw::Slow(3_600),
    Flaw::Slow(u64::MAX),
    Flaw::Invalid,
    Flaw::NoDownload,
    Flaw::ForeignDomain,
    Flaw::NoChallenge,
    Flaw::OtherKey,
    Flaw::NoCertificate,
    Flaw::OtherNames,
    Flaw::FewerNames,
    Flaw::Future,
    Flaw::Expired,
    Flaw::LargeChain,
    Flaw::Short,
    Flaw::Endless,
];

const REFUSALS: [Mode; 10] = [
    Mode::Refuses("rateLimited", 429, Some(3_600)),
    Mode::Refuses("rateLimited", 429, Some(u64::MAX)),
    Mode::Refuses("rateLimited", 429, None),
    Mode::Refuses("serverInternal", 500, None),
    Mode::Refuses("serverInternal", 503, Some(120)),
    Mode::Refuses("badNonce", 400, None),
    Mode::Refuses("unauthorized", 403, None),
    Mode::Refuses("malformed", 400, None),
    Mode::Refuses("rejectedIdentifier", 400, Some(7 * DAY)),
    Mode::Refuses("userActionRequired", 403, None),
];

impl Mode {
    /// The mode of a number; 0 is right.
    pub(super) fn of(number: u32) -> Self {
        let within = number / 12;
        match number % 12 {
            0 | 1 => Self::Right,
            2 => Self::Down,
            3 => REFUSALS[within as usize % REFUSALS.len()],
            4 | 5 => Self::Mutates(
                KINDS[within as usize % KINDS.len()],
                Mutation {
                    field: (within / 5) as usize % 7,
                    how: within / 35 % WAYS,
                },
            ),
            6..=8 => Self::Flawed(FLAWS[within as usize % FLAWS.len()]),
            9 => [Self::Forgets, Self::ForgetsAccount][within as usize % 2],
            10 => [Self::NoLocation, Self::ForgetsAccount][within as usize % 2],
            _ => [Self::WindowPast, Self::WindowFar, Self::WindowReversed][within as usize % 3],
        }
    }
}

/// A certificate with its key, as it is in a file.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) facts: Certificate,
    pub(super) is_matching: bool,
}

#[derive(Clone, Debug)]
pub(super) struct AuthorityOrder {
    pub(super) status: OrderStatus,
    pub(super) flaw: Flaw,
    born: u64,
    polls: u32,
    pub(super) issued: Option<Rc<Pair>>,
}

/// A response.
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) retry_after: Option<u64>,
}

pub(super) struct Authority {
    pub(super) mode: Mode,
    pub(super) since: u64,
    pub(super) orders: Vec<AuthorityOrder>,
    pub(super) lifetime: u64,
    pub(super) accounts: u32,
    pub(super) has_account: bool,
    serial: u32,
}

impl Authority {
    pub(super) fn new(lifetime: u64) -> Self {
        Self {
            mode: Mode::Right,
            since: 0,
            orders: Vec::new(),
            lifetime,
            accounts: 0,
            has_account: false,
            serial: 0,
        }
    }

    /// The number of an order's URL.
    pub(super) fn number(url: &str) -> usize {
        let number = url
            .rsplit('/')
            .next()
            .and_then(|number| number.parse().ok());
        number.unwrap_or(usize::MAX)
    }

    /// What it answers to every request, if it does not look at it.
    pub(super) fn refusal(&self) -> Option<Response> {
        match self.mode {
            Mode::Refuses(kind, status, retry_after) => {
                Some(self.problem(kind, status, retry_after))
            }
            _ => None,
        }
    }

    pub(super) fn knows_account(&self) -> bool {
        self.has_account
    }

    fn mutation(&self, kind: Kind) -> Option<Mutation> {
        match self.mode {
            Mode::Mutates(of, mutation) if of == kind => Some(mutation),
            _ => None,
        }
    }

    pub(super) fn problem(&self, kind: &str, status: u16, retry_after: Option<u64>) -> Response {
        let fields = Fields::new()
            .text("type", &format!("urn:ietf:params:acme:error:{kind}"))
            .text("detail", &format!("problem {kind}"))
            .raw("status", status.to_string());
        Response {
            status,
            body: fields.json(self.mutation(Kind::Problem)),
            retry_after,
        }
    }

    pub(super) fn directory(&self) -> Response {
        let fields = Fields::new()
            .text("newNonce", "https://ca.test/n")
            .text("newAccount", "https://ca.test/a")
            .text("newOrder", "https://ca.test/o")
            .text("revokeCert", "https://ca.test/r")
            .text("keyChange", "https://ca.test/k")
            .text("renewalInfo", "https://ca.test/i")
            .raw("meta", "{}".to_owned());
        ok(fields.json(self.mutation(Kind::Directory)))
    }

    /// Places an order; its number.
    pub(super) fn place(&mut self, now: u64) -> usize {
        let flaw = match self.mode {
            Mode::Flawed(flaw) => flaw,
            _ => Flaw::None,
        };
        self.orders.push(AuthorityOrder {
            status: OrderStatus::Pending,
            flaw,
            born: now,
            polls: 0,
            issued: None,
        });
        self.orders.len() - 1
    }

    /// Shows an order.
    pub(super) fn order(&self, number: usize) -> Response {
        if !self.knows_account() {
            return self.problem("accountDoesNotExist", 400, None);
        }
        let known = self.orders.get(number);
        let Some(order) = known.filter(|one| self.mode != Mode::Forgets || one.born >= self.since)
        else {
            return self.problem("malformed", 404, None);
        };
        let mut fields = Fields::new()
            .text("status", &order.status.name().to_ascii_lowercase())
            .text("expires", "2099-01-01T00:00:00Z")
            .raw(
                "authorizations",
                "[\"https://ca.test/z/1\",\"https://ca.test/z/2\"]".to_owned(),
            )
            .text("finalize", "https://ca.test/f");
        if order.status == OrderStatus::Valid {
            fields = fields.text("certificate", "https://ca.test/c");
        }
        let pause = match order.flaw {
            Flaw::Slow(pause) => Some(pause),
            _ => None,
        };
        Response {
            retry_after: pause,
            ..ok(fields.json(self.mutation(Kind::Order)))
        }
    }

    pub(super) fn authorization(&self, number: usize, domain: &str) -> Response {
        let order = &self.orders[number];
        let domain = if order.flaw == Flaw::ForeignDomain {
            "bank.example"
        } else {
            domain
        };
        let status = if order.status == OrderStatus::Pending {
            "pending"
        } else {
            "valid"
        };
        let challenges = if order.flaw == Flaw::NoChallenge {
            "[{\"type\":\"dns-01\"}]".to_owned()
        } else {
            let one = |kind: Challenge| {
                let name = kind.name();
                format!("{{\"type\":\"{name}\",\"url\":\"https://ca.test/h\",\"token\":\"tok\"}}")
            };
            let all = Challenge::ALL.map(one);
            format!("[{}]", all.join(","))
        };
        let fields = Fields::new()
            .text("status", status)
            .raw(
                "identifier",
                format!("{{\"type\":\"dns\",\"value\":\"{domain}\"}}"),
            )
            .raw("challenges", challenges);
        ok(fields.json(self.mutation(Kind::Authorization)))
    }

    /// Validates the proofs of an order.
    pub(super) fn prove(&mut self, number: usize) {
        let order = &mut self.orders[number];
        order.status = match order.flaw {
            Flaw::StaysPending => OrderStatus::Pending,
            Flaw::Invalid => OrderStatus::Invalid,
            _ => OrderStatus::Ready,
        };
    }

    pub(super) fn finalize(&mut self, number: usize) {
        let order = &mut self.orders[number];
        if order.status == OrderStatus::Ready {
            order.status = OrderStatus::Processing;
        }
    }

    /// An order that is processing goes on.
    pub(super) fn poll(&mut self, number: usize, now: u64) {
        let Some(order) = self.orders.get_mut(number) else {
            return;
        };
        order.polls += 1;
        let is_done = match order.flaw {
            Flaw::StaysProcessing => false,
            Flaw::Slow(_) => order.polls > 4,
            _ => order.polls > 1,
        };
        if order.status == OrderStatus::Processing && is_done {
            order.status = OrderStatus::Valid;
            let flaw = order.flaw;
            let pair = Rc::new(self.issue(flaw, now));
            self.orders[number].issued = Some(pair);
        }
    }

    fn issue(&mut self, flaw: Flaw, now: u64) -> Pair {
        self.serial += 1;
        let lifetime = self.lifetime;
        let [not_before, not_after] = match flaw {
            Flaw::Future => [now + DAY, now + DAY + lifetime],
            Flaw::Expired => [now - 2 * lifetime, now - lifetime],
            Flaw::Short => [now - lifetime, now + lifetime / 20],
            Flaw::Endless => [0, 253_402_300_799],
            _ => [now - lifetime / 100, now + lifetime],
        };
        let names: &[&str] = match flaw {
            Flaw::OtherNames => &["bank.example"],
            Flaw::FewerNames => &DOMAINS[..1],
            _ => &DOMAINS,
        };
        let facts = Certificate {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            validity: Validity {
                not_before,
                not_after,
            },
            chain_bytes: if flaw == Flaw::LargeChain {
                50_000
            } else {
                4_000
            },
            digest: format!("{:064x}", self.serial),
            chance: Drawn(self.serial.wrapping_mul(0x9e37_79b9)),
            id: Some(format!("id.{}", self.serial)),
        };
        Pair {
            facts,
            is_matching: flaw != Flaw::OtherKey && flaw != Flaw::NoCertificate,
        }
    }

    pub(super) fn renewal_info(&self, of: &Certificate, now: u64) -> Response {
        let Validity {
            not_before,
            not_after,
        } = of.validity;
        let middle = not_before / 3 + not_after / 3 * 2;
        let [start, end] = match self.mode {
            Mode::WindowPast => [now - 2 * DAY, now - DAY],
            Mode::WindowFar => [now + 9_999 * DAY, now + 99_999 * DAY],
            Mode::WindowReversed => [now + DAY, now - DAY],
            _ => [middle, middle + self.lifetime / 30],
        };
        let window = format!(
            "{{\"start\":\"{}\",\"end\":\"{}\"}}",
            rfc3339(start),
            rfc3339(end)
        );
        let fields = Fields::new()
            .raw("suggestedWindow", window)
            .text("explanationURL", "https://ca.test/why");
        Response {
            retry_after: Some(6 * 3_600),
            ..ok(fields.json(self.mutation(Kind::RenewalInfo)))
        }
    }
}

fn ok(body: String) -> Response {
    Response {
        status: 200,
        body,
        retry_after: None,
    }
}

fn rfc3339(seconds: u64) -> String {
    use time::OffsetDateTime;
    let seconds = i64::try_from(seconds).expect("a time of the simulation");
    let time = OffsetDateTime::from_unix_timestamp(seconds).expect("a time of the simulation");
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}
