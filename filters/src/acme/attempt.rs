//! One attempt at an order, from its account to the installed certificate: RFC 8555, section 7.4.
//!
//! A begun order is finished rather than repeated: its URL and its key are stored before it is
//! validated. A certificate is judged before it replaces another one. A failure ends the attempt,
//! and what it leaves is stored.

use super::failure::{Class, Failure, Meaning};
use super::message::{
    Action, Authorization, Certificate, Challenge, Ended, Event, Order, OrderStatus, Report, Rest,
    Seen,
};
use super::progress::{Begun, Found, Progress, Receipt};
use super::renewal::{self, DUE_AGAIN};
use super::schedule::{self, LastIssue, Window};
use super::window::Known;
use crate::certificate;
use crate::chance::Chance;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// First delay between two polls; each is twice as long as the one before.
const POLL: Duration = Duration::from_millis(250);
/// Time for an authority to validate or to sign; after it, the next attempt continues the order.
const PATIENCE: Duration = Duration::from_secs(120);

/// The domains of a certificate, and how they can be proven.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) domains: Vec<String>,
    /// Whether `http-01` can be answered, next to `tls-alpn-01`.
    pub(super) has_http: bool,
}

/// Maximum seconds between two polls of an order: as long as after a refusal.
const LONGEST_PAUSE: u64 = 6 * 3_600;

/// An attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    subject: Subject,
    seen: Seen,
    /// The renewal window of the certificate in use.
    window: Option<Window>,
    progress: Progress,
    stage: Stage,
    /// The order as the authority showed it last.
    order: Option<Order>,
    has_placed: bool,
    has_forgotten: bool,
    has_finalized: bool,
    polls: Polls,
    issued: Option<Box<Certificate>>,
}

/// The step whose result the attempt waits for.
#[derive(Debug)]
enum Stage {
    Opening,
    Forgetting(Failure),
    Resuming,
    Placing,
    Beginning(Order),
    Authorizing,
    Proving,
    Polling,
    Finalizing,
    FindingCauses,
    Downloading,
    Noting,
    Installing(Option<Begun>),
    AskingWindow,
    Storing(Box<Rest>),
}

/// The polls of one wait.
#[derive(Debug, Default)]
struct Polls {
    waited: Duration,
    last: Duration,
}

/// The next step of an attempt.
pub(super) enum Next {
    Act(Action),
    Ended(Box<Rest>),
}

impl Attempt {
    /// Begins an attempt from the stored state.
    pub(super) fn begin(
        subject: Subject,
        seen: Seen,
        window: Option<Window>,
    ) -> (Box<Self>, Action) {
        let attempt = Box::new(Self {
            subject,
            progress: seen.progress(),
            seen,
            window,
            stage: Stage::Opening,
            order: None,
            has_placed: false,
            has_forgotten: false,
            has_finalized: false,
            polls: Polls::default(),
            issued: None,
        });
        (attempt, Action::OpenAccount)
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Continues the begun order, or places one.
    fn open(&mut self) -> Action {
        match self.progress.order.clone() {
            Some(begun) => self.act(Stage::Resuming, Action::Resume(begun)),
            None => self.place(),
        }
    }

    fn place(&mut self) -> Action {
        self.order = None;
        self.has_finalized = false;
        self.polls = Polls::default();
        let has_id = self
            .seen
            .ours
            .as_ref()
            .is_some_and(|held| held.id.is_some());
        // only an authority with renewal information understands what is replaced
        let action = if has_id && self.window.is_some() && self.progress.failed == 0 {
            Action::PlaceReplacing
        } else {
            Action::Place
        };
        self.act(Stage::Placing, action)
    }

    fn act(&mut self, stage: Stage, action: Action) -> Action {
        self.stage = stage;
        action
    }

    /// Takes the result of the last action.
    pub(super) fn step(
        &mut self,
        event: Event,
        known: &mut Known,
        now: u64,
        chance: Chance,
    ) -> Next {
        if let Stage::Storing(rest) = &self.stage {
            return Next::Ended(rest.clone());
        }
        match self.proceed(event, known, now) {
            Ok(action) => Next::Act(action),
            Err(failure) => Next::Act(self.fail(failure, now, chance)),
        }
    }

    fn proceed(&mut self, event: Event, known: &mut Known, now: u64) -> Result<Action, Failure> {
        let stage = core::mem::replace(&mut self.stage, Stage::Polling);
        match (stage, event) {
            (Stage::Forgetting(failure), event) => {
                self.progress.order = None;
                match event {
                    Event::Done if !self.has_placed => {
                        Ok(self.act(Stage::Opening, Action::OpenAccount))
                    }
                    _ => Err(failure),
                }
            }
            (stage, Event::Failed(failure)) => self.failed_at(stage, failure, known, now),
            (Stage::Opening, Event::Done) => Ok(self.open()),
            (Stage::Resuming, Event::Order(order)) if order.status == OrderStatus::Invalid => {
                Ok(self.place())
            }
            (Stage::Placing, Event::Placed(begun, order)) => {
                self.has_placed = true;
                self.progress.order = Some(begun);
                let store = Action::Store(self.progress.clone());
                Ok(self.act(Stage::Beginning(order), store))
            }
            (Stage::Beginning(order), Event::Done) => self.go_on(order),
            (_, Event::Order(order)) => self.go_on(order),
            (Stage::Authorizing, Event::Authorizations(all)) => self.authorize(&all),
            (Stage::Proving, Event::Done) => self.poll(),
            (Stage::FindingCauses, Event::Causes(causes)) => Err(refused(&causes)),
            (Stage::Downloading, Event::Issued(issued)) => self.issued(issued, now),
            (Stage::Noting, _) => self.judge(now),
            (Stage::Installing(_), Event::Done) => self.installed(known, now),
            (Stage::AskingWindow, Event::Window(answer)) => self.is_due(known, answer, now),
            _ => Err(Failure::new("a defect of the program ended the attempt")),
        }
    }

    /// The action after one that failed.
    ///
    /// # Errors
    /// The failure, if it ends the attempt.
    fn failed_at(
        &mut self,
        stage: Stage,
        failure: Failure,
        known: &mut Known,
        now: u64,
    ) -> Result<Action, Failure> {
        if failure.meaning == Meaning::UnknownAccount && !self.has_forgotten {
            self.has_forgotten = true;
            return Ok(self.act(Stage::Forgetting(failure), Action::ForgetAccount));
        }
        match stage {
            // it has expired, or belongs to another account
            Stage::Resuming if failure.meaning == Meaning::Gone => Ok(self.place()),
            // there may be an order whose URL is unknown
            Stage::Placing if failure.is_final() => {
                self.has_placed = true;
                Err(failure)
            }
            Stage::FindingCauses => Err(refused("")),
            Stage::Noting => self.judge(now),
            Stage::Installing(begun) => {
                self.progress.order = begun;
                Err(failure)
            }
            Stage::AskingWindow => self.is_due(known, None, now),
            _ => Err(failure),
        }
    }

    /// Goes on with the order as the authority shows it.
    fn go_on(&mut self, order: Order) -> Result<Action, Failure> {
        let is_first = self.order.is_none();
        self.order = Some(order);
        match order.status {
            OrderStatus::Pending if is_first => Ok(self.act(Stage::Authorizing, Action::Authorize)),
            OrderStatus::Ready if !self.has_finalized => {
                self.has_finalized = true;
                self.polls = Polls::default();
                Ok(self.act(Stage::Finalizing, Action::Finalize))
            }
            OrderStatus::Pending | OrderStatus::Ready | OrderStatus::Processing => self.poll(),
            OrderStatus::Valid => Ok(self.act(Stage::Downloading, Action::Download)),
            OrderStatus::Invalid => Ok(self.act(Stage::FindingCauses, Action::FindCauses)),
        }
    }

    /// Fetches the order again, unless the authority takes too long.
    fn poll(&mut self) -> Result<Action, Failure> {
        let pause = self.order.and_then(|order| order.pause);
        let delay = self.polls.last.saturating_mul(2).max(POLL);
        let delay = delay.max(Duration::from_secs(pause.unwrap_or(0)));
        let waited = self.polls.waited.saturating_add(delay);
        if waited > PATIENCE {
            let failure = Failure::new("certificate: the authority is not done yet");
            return Err(failure.after(pause.map(|pause| pause.min(LONGEST_PAUSE))));
        }
        self.polls = Polls {
            waited,
            last: delay,
        };
        Ok(self.act(Stage::Polling, Action::Poll(delay)))
    }

    /// Proves the domains that are not proven yet.
    fn authorize(&mut self, all: &[Authorization]) -> Result<Action, Failure> {
        let challenge = if self.subject.has_http && self.progress.failed.is_multiple_of(2) {
            Challenge::Http01
        } else {
            Challenge::TlsAlpn01
        };
        for Authorization { domain, offers, .. } in all.iter().filter(|one| one.is_pending) {
            if !self
                .subject
                .domains
                .iter()
                .any(|own| own.eq_ignore_ascii_case(domain))
            {
                let cause = format!("{domain}: the authority wants a proof of a foreign domain");
                return Err(Failure::refused(&cause));
            }
            if !offers.contains(&challenge) {
                let name = challenge.name();
                let cause = format!("{domain}: the authority does not offer the challenge {name}");
                return Err(Failure::refused(&cause));
            }
        }
        if all.iter().any(|one| one.is_pending) {
            return Ok(self.act(Stage::Proving, Action::Prove(challenge)));
        }
        self.poll()
    }

    /// Takes the certificate that was downloaded, and stores that it was issued, once.
    fn issued(
        &mut self,
        issued: Result<Box<Certificate>, String>,
        now: u64,
    ) -> Result<Action, Failure> {
        let certificate = issued.map_err(|why| {
            // downloaded again, it would be no better
            self.progress.order = None;
            Failure::refused(&format!(
                "the certificate that was issued is unusable: {why}"
            ))
        })?;
        let lifetime = certificate.validity.lifetime();
        self.issued = Some(certificate);
        let url = self.progress.order.as_ref().map(|begun| begun.url.clone());
        let before = self.seen.receipt.as_ref();
        match url {
            Some(order) if before.is_none_or(|before| before.order != order) => {
                let last = LastIssue::then(before.map(|before| before.last), lifetime, now);
                let receipt = Receipt { order, last };
                Ok(self.act(Stage::Noting, Action::StoreReceipt(receipt)))
            }
            _ => self.judge(now),
        }
    }

    /// Judges the certificate before it replaces the one in use.
    fn judge(&mut self, now: u64) -> Result<Action, Failure> {
        let begun = self.progress.order.take();
        let Some(issued) = &self.issued else {
            return Err(Failure::malformed("certificate: there is none"));
        };
        let judged = issued.judge(&self.subject.domains, now);
        let judged = judged.and_then(|()| match self.seen.good(&self.subject.domains, now) {
            // the clock was set back since
            Some(held) if schedule::due(&renewal::facts(held, self.window)) > now => {
                certificate::judge_against(issued.validity, held.validity)
            }
            _ => Ok(()),
        });
        if let Err(unfit) = judged {
            let cause = format!("a certificate was issued, but {unfit}");
            return Err(Failure::refused(&cause));
        }
        Ok(self.act(Stage::Installing(begun), Action::Install))
    }

    /// Asks for the renewal time of a certificate that is due otherwise.
    fn installed(&mut self, known: &mut Known, now: u64) -> Result<Action, Failure> {
        let Some(issued) = &self.issued else {
            return Ok(self.succeed());
        };
        if schedule::due(&renewal::facts(issued, None)) > now {
            return Ok(self.succeed());
        }
        if issued.id.is_some() {
            return Ok(self.act(Stage::AskingWindow, Action::AskWindow));
        }
        self.is_due(known, None, now)
    }

    /// Ends the attempt after a certificate that its authority may want renewed later.
    fn is_due(
        &mut self,
        known: &mut Known,
        answer: Option<(Window, u64)>,
        now: u64,
    ) -> Result<Action, Failure> {
        let Some(issued) = &self.issued else {
            return Ok(self.succeed());
        };
        if let Some(id) = &issued.id {
            known.learn(id, answer, now);
        }
        let window = answer.map(|(window, _)| window);
        if schedule::due(&renewal::facts(issued, window)) > now {
            return Ok(self.succeed());
        }
        self.progress = Progress {
            renews: issued.digest.clone(),
            failed: self.progress.failed,
            ..Progress::default()
        };
        Err(Failure::refused(DUE_AGAIN))
    }

    /// Not earlier: after a crash before this, the same certificate is downloaded again.
    fn succeed(&mut self) -> Action {
        let rest = Box::new(Rest {
            until: 0,
            report: Some(Report::Fine),
            ended: Some(Ended::Issued),
            failed: 0,
        });
        self.act(Stage::Storing(rest), Action::Store(Progress::default()))
    }

    fn fail(&mut self, failure: Failure, now: u64, chance: Chance) -> Action {
        let begun = self.progress.order.as_ref();
        let before = self.seen.progress.order.as_ref();
        let found = Found {
            status: self.order.map(|order| order.status),
            before: before
                .filter(|before| begun.is_some_and(|begun| begun.url == before.url))
                .map(|before| before.status.clone()),
            is_final: failure.is_final(),
            expires: self.order.and_then(|order| order.expires),
        };
        let was_abandoned = self.progress.keep_or_abandon(&found, now);
        let class = failure.class;
        // each attempt that places another order waits as after a refusal
        let is_costly = was_abandoned || self.has_placed && self.progress.order.is_none();
        let failure = Failure {
            class: if is_costly { Class::Refused } else { class },
            ..failure
        };
        let mut rest = renewal::failed(&mut self.progress, failure, now, chance);
        rest.ended = Some(Ended::Failed {
            class,
            is_abandoned: was_abandoned,
        });
        self.act(Stage::Storing(rest), Action::Store(self.progress.clone()))
    }
}

/// The authority rejected the order, for these causes.
fn refused(causes: &str) -> Failure {
    let causes = if causes.is_empty() {
        "the order is invalid"
    } else {
        causes
    };
    Failure::refused(&format!("validation: {causes}"))
}
