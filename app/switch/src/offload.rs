//! Hardware offload in the switch: its settings, the emulated cards, and the threads that drive both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fv_core::{Clock, Nanos};
use fv_netdev::{DeviceError, Registry};
use fv_nic_sim::{Cards, PROVIDER};
use fv_offload::ProviderOrder;
use parking_lot::{Condvar, Mutex};

use crate::datapaths::DpInst;

/// Providers that `hw-offload-priority` may name; those that are not built in are taken and do nothing.
const KNOWN: [&str; 5] = ["tc", "dpdk", "dummy", "dummy_x", PROVIDER];
/// Packets of one turn of a card.
const BUDGET: usize = 4096;
/// Longest that a card without packets is not looked at.
const NIC_REST_MAX: Nanos = Nanos::from_ms(1);
const NIC_REST_MIN: Nanos = Nanos(20_000);
/// Longest that virtual time waits for one thread.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// What `other_config` says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Settings {
    enabled: bool,
    rebalance: bool,
    order: ProviderOrder,
}

#[derive(Default)]
pub struct Offload {
    cards: Arc<Cards>,
    settings: Settings,
    /// What was complained about last.
    complaint: String,
    nic: Arc<Mutex<Option<Driver>>>,
}

impl Offload {
    pub fn cards(&self) -> Arc<Cards> {
        self.cards.clone()
    }

    pub fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// Says whether anything has changed.
    pub fn configure(&mut self, other_config: &BTreeMap<String, String>) -> bool {
        let flag = |key| other_config.get(key).is_some_and(|v| v == "true");
        let mut complaint = String::new();
        let threads = other_config.get("n-offload-threads");
        if let Some(n) = threads.filter(|n| !n.parse::<u32>().is_ok_and(|n| (1..=10).contains(&n))) {
            complaint = format!("netdev: Invalid number of threads requested: {n}, using 1");
        }
        let list = other_config.get("hw-offload-priority").map_or("", String::as_str);
        let (order, unknown) = ProviderOrder::parse(list, &KNOWN);
        for name in unknown {
            complaint = format!("hw-offload-priority configuration has an unknown type; {name}");
        }
        if complaint != self.complaint && !complaint.is_empty() {
            log::warn!(target: "dpif_offload", "{complaint}");
        }
        self.complaint = complaint;
        let wanted = Settings { enabled: flag("hw-offload"), rebalance: flag("offload-rebalance"), order };
        if wanted == self.settings {
            return false;
        }
        if wanted.enabled != self.settings.enabled {
            let is = if wanted.enabled { "enabled" } else { "disabled" };
            log::info!(target: "dpif_offload", "Flow HW offload is {is}");
        }
        self.settings = wanted;
        true
    }

    /// Brings a datapath in line with the settings.
    pub fn apply(&self, inst: &mut DpInst, clock: &Clock) {
        inst.overlay.set_order(self.settings.order.clone());
        inst.overlay.set_rebalance(self.settings.rebalance);
        if self.settings.enabled && inst.driver.is_none() {
            let overlay = inst.overlay.clone();
            match Driver::start("offload", clock, None, move |now| overlay.turn(now)) {
                Ok(driver) => {
                    let bell = driver.bell.clone();
                    inst.overlay.set_waker(Box::new(move || bell.ring()));
                    inst.driver = Some(driver);
                }
                Err(e) => return log::error!(target: "dpif_offload", "cannot create offload thread: {e}"),
            }
        }
        inst.overlay.set_enabled(self.settings.enabled);
        inst.driver.iter().for_each(|d| d.bell.ring());
    }

    /// Offers `type=simnic`: a port of an emulated NIC in front of the device that `options:lower` names.
    pub fn register(&self, registry: &mut Registry, clock: &Clock) {
        let (wires, cards, nic, clock) = (registry.clone(), self.cards.clone(), self.nic.clone(), clock.clone());
        registry.register("simnic", move |name, options, env| {
            let missing = || DeviceError::bad_option("lower", "", "the device that is the port's wire is missing");
            let lower = options.get("lower").ok_or_else(missing)?;
            let kind = options.get("lower-type").map_or("system", String::as_str);
            let lower = wires.open(kind, lower, &BTreeMap::new(), env)?;
            let port = cards.plug(name, options, lower)?;
            let mut nic = nic.lock();
            if nic.is_none() {
                let (cards, mut rest) = (cards.clone(), NIC_REST_MIN);
                let turn = move |now| {
                    let moved = cards.turn(now, BUDGET);
                    rest = if moved > 0 { NIC_REST_MIN } else { (rest + rest).min(NIC_REST_MAX) };
                    if moved > 0 { now } else { cards.due().min(now + rest) }
                };
                let started = Driver::start("simnic", &clock, Some(NIC_REST_MAX), turn);
                *nic = Some(started.map_err(|e| DeviceError::io("cannot create simnic thread", e))?);
            }
            Ok(port)
        });
    }

    pub fn settle(&self, now: Nanos) {
        self.nic.lock().iter().for_each(|d| d.settle(now));
    }
}

impl DpInst {
    /// Offers a new port to the providers, as far as its own `hw-offload-priority` lets them.
    pub fn attach(&self, port: fv_core::DpPort, i: &fv_config::IfaceSpec) {
        let own = i.other_config.get("hw-offload-priority").map(|list| {
            let (order, unknown) = ProviderOrder::parse(list, &KNOWN);
            for name in unknown {
                log::warn!(target: "dpif_offload", "{}: hw-offload-priority has an unknown type; {name}", i.name);
            }
            order
        });
        self.overlay.attach(port, &i.name, own.as_ref());
    }
}

/// What wakes a driver.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.heard.notify_all();
    }

    /// Until it rings; None: as long as that takes.
    fn wait(&self, at_most: Option<Duration>) {
        let mut rung = self.rung.lock();
        match at_most {
            _ if *rung => {}
            Some(time) => {
                self.heard.wait_for(&mut rung, time);
            }
            None => self.heard.wait(&mut rung),
        }
        *rung = false;
    }
}

/// A thread that calls a turn, which says when it wants to be called again.
pub struct Driver {
    name: &'static str,
    pub(crate) bell: Arc<Bell>,
    /// Time of the last turn that found nothing more to do.
    idle_at: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Driver {
    /// `poll`: how often it has to look even while time stands still.
    fn start(
        name: &'static str,
        clock: &Clock,
        poll: Option<Nanos>,
        mut turn: impl FnMut(Nanos) -> Nanos + Send + 'static,
    ) -> std::io::Result<Driver> {
        let (bell, idle_at, stop) = (Arc::<Bell>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (b, i, s, clock) = (bell.clone(), idle_at.clone(), stop.clone(), clock.clone());
        let handle = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _guard = crate::threads::AbortOnPanic;
            while !s.load(Ordering::Acquire) {
                let now = clock.now();
                let next = turn(now);
                if next <= now {
                    continue;
                }
                i.store(now.0, Ordering::Release);
                let rest = match clock.is_stopped() {
                    true => poll,
                    false if next == Nanos::MAX => poll,
                    false => Some(next.saturating_sub(clock.now())),
                };
                b.wait(rest.map(Duration::from));
            }
        })?;
        Ok(Driver { name, bell, idle_at, stop, handle: Some(handle) })
    }

    /// Waits until it has had an idle turn at `now` or later.
    pub fn settle(&self, now: Nanos) {
        let started = Instant::now();
        while self.idle_at.load(Ordering::Acquire) < now.0 {
            self.bell.ring();
            if started.elapsed() > SETTLE_LIMIT {
                log::warn!(target: "timeval", "thread {} does not come to rest", self.name);
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}
