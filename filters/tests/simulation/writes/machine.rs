//! Virtual time, and the tasks that run in it: one event at a time, in an order that chance decides.
//!
//! A task is polled only when an event woke it. Tasks belong to a process; one that crashes loses
//! them, and one that is paused runs them later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A process: a relay by its number, or [`CLIENTS`].
pub(super) type Process = usize;
/// The clients are no process that crashes.
pub(super) const CLIENTS: Process = usize::MAX;

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Effect<W> = Box<dyn FnOnce(&mut W) + Send>;

enum Event<W> {
    Wake(Waker),
    Effect(Effect<W>),
}

/// The agenda: what happens when. It is part of the world, whose effects add to it.
pub(super) struct Agenda<W> {
    pub(super) now: Duration,
    seq: u64,
    due: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, Event<W>>,
    started: Vec<(Process, Work)>,
    killed: Vec<Process>,
}

impl<W> Agenda<W> {
    pub(super) fn new() -> Self {
        Self {
            now: Duration::ZERO,
            seq: 0,
            due: BinaryHeap::new(),
            events: BTreeMap::new(),
            started: Vec::new(),
            killed: Vec::new(),
        }
    }

    fn add(&mut self, after: Duration, event: Event<W>) {
        self.seq += 1;
        self.due.push(Reverse((self.now + after, self.seq)));
        self.events.insert(self.seq, event);
    }

    /// Lets something happen to the world.
    pub(super) fn after(&mut self, after: Duration, effect: impl FnOnce(&mut W) + Send + 'static) {
        self.add(after, Event::Effect(Box::new(effect)));
    }

    /// Lets time pass in which nothing happens: what was due in it is due now.
    pub(super) fn skip(&mut self, time: Duration) {
        self.now += time;
    }

    fn wake(&mut self, after: Duration, waker: Waker) {
        self.add(after, Event::Wake(waker));
    }

    /// Starts a task.
    pub(super) fn start(&mut self, of: Process, work: impl Future<Output = ()> + Send + 'static) {
        self.started.push((of, Box::pin(work)));
    }

    /// Ends all tasks of a process.
    pub(super) fn kill(&mut self, process: Process) {
        self.killed.push(process);
    }
}

/// A world that the machine can run.
pub(super) trait HasAgenda: Sized + Send + 'static {
    fn agenda(&mut self) -> &mut Agenda<Self>;
    /// Until when the tasks of a process do not run.
    fn paused_until(&self, process: Process) -> Duration;
}

/// A world that tasks share.
pub(super) struct Shared<W>(Arc<Mutex<W>>);

impl<W> Clone for Shared<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: HasAgenda> Shared<W> {
    pub(super) fn new(world: W) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, W> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn now(&self) -> Duration {
        self.lock().agenda().now
    }

    /// Waits.
    pub(super) fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + use<W> {
        let (world, mut end) = (self.clone(), None);
        poll_fn(move |context| {
            let mut locked = world.lock();
            let agenda = locked.agenda();
            match end {
                Some(end) if agenda.now >= end => return Poll::Ready(()),
                Some(_) => {}
                None => {
                    end = Some(agenda.now + time);
                    agenda.wake(time, context.waker().clone());
                }
            }
            Poll::Pending
        })
    }

    /// Wakes all tasks that wait for a slot, now.
    pub(super) fn fill<T>(&self, slot: &Slot<T>, value: T) {
        fill(self.lock().agenda(), slot, value);
    }
}

/// A value that is there later, for all who wait.
pub(super) struct Slot<T>(Arc<Mutex<(Option<T>, Vec<Waker>)>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

pub(super) fn fill<W, T>(agenda: &mut Agenda<W>, slot: &Slot<T>, value: T) {
    let mut inner = slot.0.lock().expect("no task panics");
    if inner.0.is_none() {
        inner.0 = Some(value);
    }
    for waker in inner.1.drain(..) {
        agenda.wake(Duration::ZERO, waker);
    }
}

impl<T: Clone> Slot<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new((None, Vec::new()))))
    }

    pub(super) fn wait(&self) -> impl Future<Output = T> + use<T> {
        let slot = self.clone();
        poll_fn(move |context| {
            let mut inner = slot.0.lock().expect("no task panics");
            if let Some(value) = &inner.0 {
                return Poll::Ready(value.clone());
            }
            if !inner.1.iter().any(|waker| waker.will_wake(context.waker())) {
                inner.1.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

struct TaskWaker {
    task: usize,
    is_queued: AtomicBool,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready
                .lock()
                .expect("no task panics")
                .push_back(self.task);
        }
    }
}

struct Task {
    of: Process,
    work: Work,
    waker: Arc<TaskWaker>,
}

/// Runs tasks and events.
pub(super) struct Machine<W> {
    world: Shared<W>,
    tasks: BTreeMap<usize, Task>,
    started: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
    pub(super) steps: u64,
}

impl<W: HasAgenda> Machine<W> {
    pub(super) fn new(world: Shared<W>) -> Self {
        let ready = Arc::new(Mutex::new(VecDeque::new()));
        Self {
            world,
            tasks: BTreeMap::new(),
            started: 0,
            ready,
            steps: 0,
        }
    }

    /// Runs until `is_over`, or until nothing is due.
    pub(super) fn run(&mut self, is_over: impl Fn(&W, u64) -> bool) {
        loop {
            self.start_and_kill();
            let next = self.ready.lock().expect("no task panics").pop_front();
            if let Some(task) = next {
                self.poll(task);
                continue;
            }
            let is_over = is_over(&self.world.lock(), self.steps);
            if is_over || !self.advance() {
                return;
            }
        }
    }

    fn start_and_kill(&mut self) {
        let (started, killed) = {
            let mut world = self.world.lock();
            let agenda = world.agenda();
            (
                std::mem::take(&mut agenda.started),
                std::mem::take(&mut agenda.killed),
            )
        };
        for process in killed {
            let (gone, left) = std::mem::take(&mut self.tasks)
                .into_iter()
                .partition(|(_, it)| it.of == process);
            self.tasks = left;
            drop::<BTreeMap<usize, Task>>(gone);
        }
        for (of, work) in started {
            self.started += 1;
            let ready = Arc::clone(&self.ready);
            let (task, is_queued) = (self.started, AtomicBool::new(false));
            let waker = Arc::new(TaskWaker {
                task,
                is_queued,
                ready,
            });
            Arc::clone(&waker).wake();
            self.tasks.insert(self.started, Task { of, work, waker });
        }
    }

    fn poll(&mut self, id: usize) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.waker.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&task.waker));
        {
            let mut world = self.world.lock();
            let until = world.paused_until(task.of);
            let agenda = world.agenda();
            if until > agenda.now {
                let left = until - agenda.now;
                agenda.wake(left, waker);
                return;
            }
        }
        self.steps += 1;
        let mut context = Context::from_waker(&waker);
        if task.work.as_mut().poll(&mut context).is_ready() {
            self.tasks.remove(&id);
        }
    }

    /// Runs the next event; `false` if nothing is due.
    fn advance(&mut self) -> bool {
        let mut world = self.world.lock();
        let agenda = world.agenda();
        let Some(Reverse((at, seq))) = agenda.due.pop() else {
            return false;
        };
        agenda.now = agenda.now.max(at);
        self.steps += 1;
        match agenda.events.remove(&seq) {
            Some(Event::Wake(waker)) => waker.wake(),
            Some(Event::Effect(effect)) => effect(&mut world),
            None => {}
        }
        true
    }
}
