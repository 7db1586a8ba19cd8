//! An instance: performs the actions of the pure steps, one at a time, and may crash in each.

use super::Bug;
use super::authority::{Authority, DOMAINS, Flaw, Mode, Pair, Response};
use super::judge::{Clocks, is_good};
use super::world::{CLOCK_WORDS, Disk, World};
use portcullis_filters::acme::document::{self, Document};
use portcullis_filters::acme::schedule::Window;
use portcullis_filters::acme::{
    Action, Authorization, Begun, Event, Failure, Lock, Order, OrderStatus, Progress, Receipt,
    Renewal, Seen,
};
use serde::Deserialize;
use std::rc::Rc;
use std::time::Duration;

/// What an instance has in memory.
pub(super) struct Instance {
    pub(super) renewal: Renewal,
    pub(super) event: Event,
    /// When it goes on, in seconds of the world.
    pub(super) wake: u64,
    /// Its clock minus that of the world.
    pub(super) ahead: i64,
    pub(super) reaches_store: bool,
    pub(super) can_write: bool,
    pub(super) disk: Disk,
    pub(super) order: Option<usize>,
    url: String,
    pub(super) issued: Option<Rc<Pair>>,
    theirs: Option<Rc<Pair>>,
    /// What explains a failure of this attempt.
    pub(super) excuses: Vec<&'static str>,
    pub(super) shown: Option<String>,
    /// When it wanted to go on, by its clock.
    pub(super) rests_until: u64,
    /// Since when it has been starting or waiting for another one.
    pub(super) waits_since: u64,
    pub(super) last_status: Option<OrderStatus>,
    pub(super) is_stored: bool,
    pub(super) is_reloaded: bool,
    /// The longest delay that the authority demanded in this attempt, if it refused last.
    pub(super) asked: Option<u64>,
    /// Whether the download failed for good, and whether a foreign domain is to be proven.
    pub(super) is_dead: bool,
    is_foreign: bool,
    /// Writes until it crashes.
    pub(super) crashes_after: Option<u32>,
}

/// Why an action has no event.
pub(super) enum Stop {
    Failed(Failure),
    Crash,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[derive(Deserialize)]
struct Problem {
    r#type: Option<String>,
    detail: Option<String>,
    status: Option<u16>,
}

impl Instance {
    pub(super) fn new(disk: Disk, now: u64) -> Self {
        let renewal = Renewal::new(DOMAINS.map(str::to_owned).to_vec()).with_http();
        Self {
            renewal,
            event: Event::Begin,
            wake: now,
            ahead: 0,
            reaches_store: true,
            can_write: true,
            disk,
            order: None,
            url: String::new(),
            issued: None,
            theirs: None,
            excuses: Vec::new(),
            shown: None,
            rests_until: 0,
            waits_since: now,
            last_status: None,
            is_stored: true,
            is_reloaded: false,
            asked: None,
            is_dead: false,
            is_foreign: false,
            crashes_after: None,
        }
    }

    pub(super) fn clock(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.ahead)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl World {
    /// Performs an action of an instance.
    pub(super) fn perform(&mut self, of: usize, action: Action) -> Result<Event, Stop> {
        match action {
            Action::Look => Ok(Event::Seen(Box::new(self.look(of)))),
            Action::Take => self.take(of),
            Action::Share => self.share(of),
            Action::AskWindow => Ok(Event::Window(self.window(of))),
            Action::Lock => self.lock(of),
            Action::Store(progress) => self.store(of, progress),
            Action::StoreReceipt(receipt) => self.store_receipt(of, receipt),
            Action::OpenAccount => {
                self.judge.attempted(of, self.now);
                self.account(of)?;
                Ok(Event::Done)
            }
            Action::ForgetAccount => {
                self.write(of, |disk| disk.has_account = false)?;
                self.instances[of]
                    .excuses
                    .push("problem accountDoesNotExist");
                Ok(Event::Done)
            }
            Action::Resume(begun) => self.resume(of, &begun),
            Action::Place | Action::PlaceReplacing => self.place(of),
            Action::Authorize => self.authorize(of),
            Action::Prove(_) => {
                if self.instances[of].is_foreign {
                    self.judge
                        .breaks("a foreign domain is proven", String::new());
                }
                self.ask(of, Authority::directory)?;
                let number = self.number(of)?;
                self.authority.prove(number);
                Ok(Event::Done)
            }
            Action::Poll(delay) => self.poll(of, delay),
            Action::Finalize => {
                let number = self.number(of)?;
                self.reached(of)?;
                self.authority.finalize(number);
                self.show(of, number)
            }
            Action::FindCauses => {
                let _number = self.number(of)?;
                Ok(Event::Causes("problem of the proof".to_owned()))
            }
            Action::Download => self.download(of),
            Action::Install => self.install(of),
            Action::Rest(_) => Ok(Event::Begin),
        }
    }

    fn number(&self, of: usize) -> Result<usize, Failure> {
        let number = self.instances[of].order;
        number.ok_or(Failure::new("order: there is none"))
    }

    fn look(&mut self, of: usize) -> Seen {
        let instance = &mut self.instances[of];
        let fleet = self.fleet.as_ref().filter(|_| instance.reaches_store);
        let same = |one: &Option<Rc<Pair>>, other: &Option<Rc<Pair>>| match (one, other) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            _ => false,
        };
        let differs = fleet.is_some_and(|fleet| !same(&fleet.file, &instance.disk.file));
        let disk = fleet.unwrap_or(&instance.disk);
        instance.theirs = disk.file.clone().filter(|_| differs);
        let facts = |pair: &Option<Rc<Pair>>| {
            let pair = pair.as_ref().filter(|pair| pair.is_matching)?;
            Some(pair.facts.clone())
        };
        let receipt = disk.receipt.clone().or(instance.disk.receipt.clone());
        Seen {
            ours: facts(&instance.disk.file),
            theirs: facts(&instance.theirs),
            differs,
            progress: disk
                .progress
                .clone()
                .unwrap_or_else(|| instance.disk.progress.clone().unwrap_or_default()),
            receipt,
            has_account: disk.has_account || instance.disk.has_account,
        }
    }

    /// Writes to the fleet's store, then to the disk.
    fn write(&mut self, of: usize, write: impl Fn(&mut Disk)) -> Result<(), Stop> {
        let failed = Failure::new("the store or the folder cannot be written");
        self.count_write(of)?;
        let instance = &mut self.instances[of];
        let mut is_stored = true;
        match &mut self.fleet {
            Some(fleet) if instance.reaches_store => write(fleet),
            Some(_) => is_stored = false,
            None => {}
        }
        self.count_write(of)?;
        let instance = &mut self.instances[of];
        if instance.can_write {
            write(&mut instance.disk);
        } else {
            is_stored = false;
        }
        if is_stored {
            return Ok(());
        }
        instance.excuses.push("cannot be written");
        instance.is_stored = false;
        Err(failed.into())
    }

    fn count_write(&mut self, of: usize) -> Result<(), Stop> {
        match &mut self.instances[of].crashes_after {
            Some(0) => Err(Stop::Crash),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn replace(&mut self, of: usize, by: &Rc<Pair>) {
        let now = self.instances[of].clock(self.now);
        let held = self.instances[of].disk.file.clone();
        let is_due = self.is_due(of);
        self.judge.replaced(held.as_deref(), by, is_due, now);
        self.instances[of].disk.file = Some(Rc::clone(by));
    }

    fn take(&mut self, of: usize) -> Result<Event, Stop> {
        self.count_write(of)?;
        if !self.instances[of].can_write {
            return Err(Failure::new("the folder cannot be written").into());
        }
        if let Some(theirs) = self.instances[of].theirs.clone() {
            self.replace(of, &theirs);
        }
        Ok(Event::Done)
    }

    fn share(&mut self, of: usize) -> Result<Event, Stop> {
        self.count_write(of)?;
        let instance = &self.instances[of];
        let file = instance.disk.file.clone();
        if !instance.reaches_store {
            return Err(Failure::new("the fleet's store is unavailable").into());
        }
        let now = self.now;
        let is_right = instance.ahead <= 0;
        let seen = instance.theirs.clone();
        let Some(fleet) = &mut self.fleet else {
            return Ok(Event::Done);
        };
        let before = std::mem::replace(&mut fleet.file, file.clone());
        if let (Some(before), Some(file)) = (before, file)
            && is_right
            // otherwise another one has replaced it since, and shares it again
            && seen.is_some_and(|seen| Rc::ptr_eq(&seen, &before))
            && is_good(&before, now)
            && before.facts.validity.not_before > file.facts.validity.not_before
        {
            let days = [before, file].map(|one| one.facts.validity.not_before);
            self.judge
                .breaks("the fleet's certificate gets older", format!("{days:?}"));
        }
        Ok(Event::Done)
    }

    fn lock(&mut self, of: usize) -> Result<Event, Stop> {
        let instance = &mut self.instances[of];
        if self.fleet.is_some() && !instance.reaches_store || !instance.can_write {
            instance.excuses.push("cannot be locked");
            return Err(Failure::new("the store or the folder cannot be locked").into());
        }
        if self.fleet.is_some() {
            match self.lock {
                Some((other, until))
                    if other != of && until > self.now && self.bug != Bug::NoLock =>
                {
                    instance.waits_since = self.now;
                    return Ok(Event::Lock(Lock::Other));
                }
                _ => {}
            }
            // extended until it is released, or its holder dies
            self.lock = Some((of, u64::MAX));
        }
        instance.excuses.clear();
        instance.order = None;
        instance.issued = None;
        instance.last_status = None;
        instance.is_stored = true;
        instance.is_dead = false;
        instance.is_foreign = false;
        instance.asked = None;
        if instance.ahead != 0 {
            instance.excuses.extend(CLOCK_WORDS);
        }
        Ok(Event::Lock(Lock::Held))
    }

    fn store(&mut self, of: usize, progress: Progress) -> Result<Event, Stop> {
        if !progress.cause.is_empty() {
            self.judge.causes.push(progress.cause.clone());
        }
        let progress = match progress.is_empty() {
            true => None,
            false => Some(progress),
        };
        self.write(of, |disk| disk.progress.clone_from(&progress))?;
        Ok(Event::Done)
    }

    fn store_receipt(&mut self, of: usize, receipt: Receipt) -> Result<Event, Stop> {
        if self.bug != Bug::NoReceipt {
            self.write(of, |disk| disk.receipt = Some(receipt.clone()))?;
        }
        Ok(Event::Done)
    }

    fn reached(&mut self, of: usize) -> Result<(), Failure> {
        self.instances[of].asked = None;
        if self.authority.mode == Mode::Down {
            self.instances[of].excuses.push("unreachable");
            return Err(Failure::new("the authority is unreachable"));
        }
        Ok(())
    }

    /// Sends a request, and reads the response as a document.
    fn ask(
        &mut self,
        of: usize,
        answer: impl FnOnce(&Authority) -> Response,
    ) -> Result<(Document, Option<u64>), Failure> {
        self.reached(of)?;
        let refusal = self.authority.refusal();
        let response = refusal.unwrap_or_else(|| answer(&self.authority));
        let is_mutated = matches!(self.authority.mode, Mode::Mutates(..));
        let excuses = &mut self.instances[of].excuses;
        if is_mutated {
            let words = [
                "has no usable",
                "not ACME",
                "foreign domain",
                "not offer",
                "no detail",
            ];
            excuses.extend(words);
            excuses.extend(["not done yet", "problem", "is none"]);
        }
        let Response {
            status,
            body,
            retry_after,
        } = response;
        if status >= 400 {
            excuses.push("problem");
            self.instances[of].asked = retry_after;
            let problem: Result<Problem, _> = serde_json::from_str(&body);
            let problem =
                problem.map_err(|_| Failure::malformed("the authority's response is not ACME"))?;
            let cause = problem.detail.unwrap_or("no detail".to_owned());
            let failure = Failure::of_problem(problem.r#type.as_deref(), problem.status, &cause);
            return Err(failure.after(retry_after));
        }
        let read = document::read(body.as_bytes());
        match read {
            Ok(document) => Ok((document, retry_after)),
            Err(unusable) => Err(Failure::malformed(&unusable.to_string())),
        }
    }

    /// Opens the account: each session reads the directory.
    fn account(&mut self, of: usize) -> Result<(), Stop> {
        let (directory, _) = self.ask(of, Authority::directory)?;
        if !matches!(directory, Document::Directory(_)) {
            return Err(Failure::malformed("directory: the authority's is none").into());
        }
        let has_account = match &self.fleet {
            Some(fleet) if self.instances[of].reaches_store => {
                fleet.has_account || self.instances[of].disk.has_account
            }
            _ => self.instances[of].disk.has_account,
        };
        if !has_account {
            self.authority.accounts += 1;
            self.authority.has_account = true;
            self.write(of, |disk| disk.has_account = true)?;
        }
        Ok(())
    }

    fn resume(&mut self, of: usize, begun: &Begun) -> Result<Event, Stop> {
        self.judge.resumed(&begun.url);
        let number = Authority::number(&begun.url);
        let event = self.show(of, number)?;
        self.instances[of].order = Some(number);
        self.instances[of].url.clone_from(&begun.url);
        Ok(event)
    }

    fn place(&mut self, of: usize) -> Result<Event, Stop> {
        // what it refuses, it does not place
        self.reached(of)?;
        if self.authority.refusal().is_some() || !self.authority.knows_account() {
            self.show(of, usize::MAX)?;
        }
        let number = self.authority.place(self.now);
        let first = self.instances[0].ahead;
        let clocks = if self.instances.iter().all(|one| one.ahead == first) {
            Clocks::Alike
        } else {
            Clocks::Different
        };
        self.judge.placed(of, clocks, self.now);
        let instance = &mut self.instances[of];
        instance.order = Some(number);
        instance.url = format!("https://ca.test/o/{number}");
        let begun = Begun {
            url: instance.url.clone(),
            key: format!("key of {of}"),
            status: String::new(),
            unchanged: 0,
        };
        if self.authority.mode == Mode::NoLocation {
            self.instances[of].excuses.push("no order URL");
            return Err(Failure::malformed("new order: no order URL found").into());
        }
        match self.show(of, number)? {
            Event::Order(order) => Ok(Event::Placed(begun, order)),
            other => Ok(other),
        }
    }

    /// Fetches an order.
    fn show(&mut self, of: usize, number: usize) -> Result<Event, Stop> {
        let flaw = self.authority.orders.get(number).map(|order| order.flaw);
        let (document, pause) = self.ask(of, |authority| authority.order(number))?;
        let Document::Order { status, expires } = document else {
            return Err(Failure::malformed("the authority's response is none").into());
        };
        let instance = &mut self.instances[of];
        instance.last_status = Some(status);
        instance.asked = match flaw {
            Some(Flaw::Slow(pause)) => Some(pause.min(6 * 3_600)),
            _ => None,
        };
        instance.excuses.extend(words(flaw.unwrap_or(Flaw::None)));
        Ok(Event::Order(Order {
            status,
            expires,
            pause,
        }))
    }

    fn authorize(&mut self, of: usize) -> Result<Event, Stop> {
        let number = self.number(of)?;
        let mut all: Vec<Authorization> = Vec::new();
        for domain in DOMAINS {
            let (document, _) =
                self.ask(of, |authority| authority.authorization(number, domain))?;
            match document {
                Document::Authorization(authorization) => {
                    let is_own = DOMAINS.contains(&&*authorization.domain);
                    self.instances[of].is_foreign |= !is_own && authorization.is_pending;
                    all.push(authorization);
                }
                _ => return Err(Failure::malformed("the authority's response is none").into()),
            }
        }
        Ok(Event::Authorizations(all))
    }

    fn poll(&mut self, of: usize, delay: Duration) -> Result<Event, Stop> {
        if delay > Duration::from_secs(120) {
            self.judge
                .breaks("a poll waits too long", format!("{delay:?}"));
        }
        let wake = self.now.saturating_add(delay.as_secs());
        self.instances[of].wake = self.instances[of].wake.max(wake);
        let number = self.number(of)?;
        self.reached(of)?;
        self.authority.poll(number, self.now);
        self.show(of, number)
    }

    fn download(&mut self, of: usize) -> Result<Event, Stop> {
        let number = self.number(of)?;
        self.reached(of)?;
        let order = self.authority.orders.get(number).cloned();
        let Some(order) = order.filter(|order| order.flaw != Flaw::NoDownload) else {
            self.instances[of].is_dead = true;
            return Err(Failure::of_problem(Some("malformed"), Some(404), "problem").into());
        };
        let Some(pair) = order.issued else {
            return Err(Failure::malformed("certificate: problem").into());
        };
        if !pair.is_matching {
            return Ok(Event::Issued(Err("the key does not match".to_owned())));
        }
        // the first download of an order
        if self.downloaded.insert(number) {
            let lifetime = self.authority.lifetime;
            self.judge.issued(lifetime, self.now);
        }
        let facts = Box::new(pair.facts.clone());
        self.instances[of].issued = Some(pair);
        Ok(Event::Issued(Ok(facts)))
    }

    fn install(&mut self, of: usize) -> Result<Event, Stop> {
        let Some(pair) = self.instances[of].issued.clone() else {
            return Ok(Event::Done);
        };
        self.count_write(of)?;
        if let Some(fleet) = &mut self.fleet
            && self.instances[of].reaches_store
        {
            fleet.file = Some(Rc::clone(&pair));
        }
        self.count_write(of)?;
        if !self.instances[of].can_write {
            self.instances[of].excuses.push("cannot be written");
            return Err(Failure::new("the folder cannot be written").into());
        }
        self.replace(of, &pair);
        Ok(Event::Done)
    }

    fn window(&mut self, of: usize) -> Option<(Window, u64)> {
        self.account(of).ok()?;
        let instance = &self.instances[of];
        let held = instance.issued.as_ref().or(instance.disk.file.as_ref())?;
        let held = held.facts.clone();
        let now = self.now;
        let asked = self.ask(of, |authority| authority.renewal_info(&held, now));
        // without an answer nothing is demanded
        self.instances[of].asked = None;
        match asked {
            Ok((Document::RenewalInfo(window), Some(after))) => {
                if window.start < self.now {
                    self.instances[of].excuses.push("although it is new");
                }
                Some((window, after))
            }
            _ => None,
        }
    }
}

/// The words that explain a failure of an order with this flaw.
fn words(flaw: Flaw) -> &'static [&'static str] {
    match flaw {
        Flaw::None | Flaw::Endless => &[],
        Flaw::StaysPending | Flaw::StaysProcessing | Flaw::Slow(_) => &["not done yet"],
        Flaw::Invalid => &["validation: problem of the proof"],
        Flaw::NoDownload => &["problem"],
        Flaw::ForeignDomain => &["foreign domain"],
        Flaw::NoChallenge => &["not offer"],
        Flaw::OtherKey | Flaw::NoCertificate => &["is unusable"],
        Flaw::OtherNames | Flaw::FewerNames => &["is not for"],
        Flaw::Future => &["not valid yet"],
        Flaw::Expired => &["has expired"],
        Flaw::LargeChain => &["larger than"],
        Flaw::Short => &["although it is new", "ends before"],
    }
}
