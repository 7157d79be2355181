//! Control's thread: database, configuration, OpenFlow, commands, and the datapaths' own worker.

use std::sync::Arc;
use std::time::Duration;

use fv_config::{Applied, Desired};
use fv_core::{Clock, Nanos};
use fv_hostnet::{HostNet, Interest};
use fv_ofproto::packet_in::PacketInQueue;
use fv_ovsdb_db::client::TxnId;
use fv_rpc::daemon::Signals;
use fv_rpc::poll::SourceId;
use fv_rpc::{Poller, Tls, unixctl};

use crate::commands::{self, Ctx};
use crate::datapaths::Datapaths;
use crate::db::DbLink;
use crate::embedded::Embedded;
use crate::engine::Engine;
use crate::options::SwitchOptions;
use crate::report;

/// OpenFlow messages served per bridge and turn.
const OF_BUDGET: usize = 500;
/// How often devices are asked for changes that nobody announces.
const STATUS_INTERVAL: Nanos = Nanos::from_ms(100);
/// Netlink messages read at a time.
const LINK_BUDGET: usize = 1000;
const TRIM_INTERVAL: Nanos = Nanos::from_secs(5);
/// Magazines of buffers that are kept.
const TRIM_KEEP: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Start(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The switch, to be turned by its thread.
pub struct Switch {
    pub ctx: Ctx,
    db: DbLink,
    embedded: Option<Embedded>,
    unixctl: Option<unixctl::Server>,
    poller: Poller,
    registry: fv_core::Registry<Ctx>,
    applied: Applied,
    desired: Option<Desired>,
    /// Transaction that reports the configuration, and the `next_cfg` that it is about.
    reporting: Option<TxnId>,
    status_txn: Option<TxnId>,
    configured_once: bool,
    next_status: Nanos,
    next_stats: Nanos,
    next_model: Nanos,
    replica_changed: bool,
    report_due: bool,
    /// The host's links: an interface that could not be opened is tried again when they change.
    links: Option<(HostNet, u64)>,
    next_trim: Nanos,
    /// What the last wait found.
    ready: Vec<SourceId>,
    /// Some device's status may differ from what the database shows.
    status_due: bool,
}

impl Switch {
    pub fn new(opts: SwitchOptions, clock: Clock) -> Result<Switch, Error> {
        let now = clock.now();
        let poller = Poller::new()?;
        let tls = tls_of(&opts);
        let packet_ins = Arc::new(PacketInQueue::default());
        let dps = Datapaths::new(clock.clone(), poller.waker(), packet_ins.clone());
        let (remote, embedded) = crate::embedded::choose(&opts, &clock, &tls)?;
        let unixctl = match opts.unixctl.as_deref() {
            Some("none") => None,
            Some(path) => Some(opts.rundir.join(path)),
            None => Some(unixctl::default_path(&opts.rundir, &opts.program, std::process::id())),
        }
        .map(|p| unixctl::Server::open(&p))
        .transpose()
        .map_err(|e| Error::Start(format!("control socket: {e}")))?;
        let links = match opts.disable_system {
            true => None,
            false => Some((HostNet::open(Interest::default())?, 0)),
        };
        let engine = Engine::new(clock.clone(), opts, dps, packet_ins, tls.clone());
        let mut registry = fv_core::Registry::default();
        commands::register(&mut registry);
        Ok(Switch {
            db: DbLink::open(&remote, &tls, now),
            ctx: Ctx::new(engine, commands::list_text(&registry)),
            embedded,
            unixctl,
            poller,
            registry,
            applied: Applied::default(),
            desired: None,
            reporting: None,
            status_txn: None,
            configured_once: false,
            next_status: now,
            next_stats: now,
            next_model: now,
            replica_changed: false,
            report_due: false,
            links,
            next_trim: now,
            ready: Vec::new(),
            status_due: true,
        })
    }

    /// The first configuration is in effect (or there is none to wait for).
    pub fn is_ready(&self) -> bool {
        self.configured_once
    }

    /// Everything that can be done now; true if more is waiting.
    pub fn turn(&mut self) -> bool {
        let now = self.ctx.engine.clock.now();
        self.replica_changed |= self.db.turn(now);
        self.configure(now);
        let mut busy = self.turn_openflow(now);
        busy |= self.turn_packets(now);
        self.turn_commands(now);
        self.housekeeping(now);
        busy
    }

    /// Sleeps until something may have to be done.
    pub fn wait(&mut self, busy: bool) -> std::io::Result<()> {
        let e = &self.ctx.engine;
        let now = e.clock.now();
        self.db.want(&mut self.poller, now);
        if let Some(u) = &self.unixctl {
            u.want(&mut self.poller, now);
        }
        for b in e.bridges.values() {
            b.io.want(&b.of, &mut self.poller, now);
        }
        for at in [Some(self.next_status), Some(self.next_stats), Some(self.next_model), self.applied.next_retry()] {
            self.poller.wake_at(at.unwrap_or(Nanos::MAX));
        }
        if e.dummies.has_streams() {
            self.poller.wake_at(now + Nanos::from_ms(5));
        }
        if busy || self.ctx.pending_work() {
            self.poller.wake_now();
        }
        let ready = self.poller.wait(None, &e.clock)?;
        self.ready.clear();
        self.ready.extend(ready.iter().map(|r| r.source));
        Ok(())
    }

    // Configuration.

    fn configure(&mut self, now: Nanos) {
        if let Some(id) = self.reporting
            && let Some(o) = self.db.outcome(id)
        {
            self.reporting = None;
            if !o.is_success() {
                log::debug!(target: "bridge", "status could not be written: {o:?}");
                self.report_due = true;
            }
        }
        if !self.db.is_ours() {
            // A process that lost the lock must let go of the host.
            if self.db.client().is_lock_contended() && !self.applied.bridges.is_empty() {
                self.take_down(now);
            }
            return;
        }
        let retry = self.applied.next_retry().is_some_and(|t| t <= now);
        if self.replica_changed || retry {
            self.replica_changed = false;
            self.reconfigure(now);
        }
        if self.report_due && self.reporting.is_none() {
            self.report(now);
        }
    }

    fn take_down(&mut self, now: Nanos) {
        let plan = fv_config::plan(&self.applied, &Desired::default(), now);
        fv_config::apply::apply(&plan, &mut self.applied, &mut self.ctx.engine, now);
        self.desired = None;
        self.replica_changed = true;
    }

    fn reconfigure(&mut self, now: Nanos) {
        let Some(want) = fv_config::desired(self.db.client()) else {
            self.configured_once |= self.db.client().is_synced();
            return;
        };
        let news: Vec<&String> = match &self.desired {
            Some(old) => want.diagnostics.iter().filter(|d| !old.diagnostics.contains(d)).collect(),
            None => want.diagnostics.iter().collect(),
        };
        news.iter().for_each(|d| log::warn!(target: "bridge", "{d}"));
        self.ctx.apply_ssl(&want.globals.ssl);
        let plan = fv_config::plan(&self.applied, &want, now);
        if !plan.steps.is_empty() {
            log::debug!(target: "bridge", "configuration:\n{plan}");
        }
        fv_config::apply::apply(&plan, &mut self.applied, &mut self.ctx.engine, now);
        self.desired = Some(want);
        self.report_due = true;
        if !std::mem::replace(&mut self.configured_once, true) {
            // Counters are there from the start, not only after the first interval.
            self.next_stats = now;
        }
    }

    fn report(&mut self, now: Nanos) {
        let Some(want) = &self.desired else { return };
        self.report_due = false;
        let t = report::configuration(&self.ctx.engine, &self.applied, self.db.client(), want.next_cfg, now);
        self.reporting = t.map(|t| self.db.commit(t, now));
    }

    // OpenFlow and packets.

    fn turn_openflow(&mut self, now: Nanos) -> bool {
        let e = &mut self.ctx.engine;
        let mut busy = false;
        let jobs = e.packet_ins.drain();
        for j in jobs {
            if let Some(b) = e.bridges.values_mut().find(|b| b.of.id() == j.bridge) {
                b.of.packet_in(&j, now);
            }
        }
        let mut next: Option<Nanos> = None;
        for b in e.bridges.values_mut() {
            let version = b.of.tables().version();
            b.io.turn(&mut b.of, &self.ready, now);
            let t = b.of.turn(now, OF_BUDGET, &mut e.world);
            b.io.flush(&mut b.of);
            busy |= t.more;
            next = [next, t.next].into_iter().flatten().min();
            if b.of.tables().version() != version
                && let Some(i) = e.world.kind_of(b.of.id()).and_then(|k| e.world.dps.find(k))
            {
                match b.of.take_changed() {
                    Some(rules) => i.slowpath.rules_changed(b.of.id(), &rules),
                    None => i.slowpath.model_changed(),
                }
            }
        }
        e.world.publish_all();
        self.next_model = next.unwrap_or(Nanos::MAX);
        busy
    }

    fn turn_packets(&mut self, now: Nanos) -> bool {
        let e = &self.ctx.engine;
        let active = e.dummies.turn(now);
        e.world.dps.turn_main(now) | active
    }

    // Commands.

    fn turn_commands(&mut self, now: Nanos) {
        let Some(u) = &mut self.unixctl else { return };
        for r in u.turn(now) {
            let args: Vec<&str> = r.args.iter().map(String::as_str).collect();
            let reply = guarded(&self.registry, &mut self.ctx, &r.command, &args);
            u.reply(r.token, reply);
        }
        u.flush();
    }

    fn housekeeping(&mut self, now: Nanos) {
        self.ctx.coverage.turn(now);
        let e = &mut self.ctx.engine;
        if now >= self.next_status {
            self.next_status = now + STATUS_INTERVAL;
            if e.refresh_changed_ports() {
                e.commit_all();
                self.applied.retry_now();
                for (bridge, name) in e.lost_interfaces() {
                    self.applied.lost(&bridge, &name, e, now);
                }
                self.replica_changed = true;
                self.status_due = true;
            }
            e.expire(now);
            e.refresh_tunnels(now);
            e.world.dps.measure(now);
            if self.host_changed(now) && self.applied.next_retry().is_some() {
                self.applied.retry_now();
            }
            if self.configured_once
                && self.db.is_ours()
                && self.status_txn.is_none()
                && self.reporting.is_none()
                && let Some(t) = report::current(
                    &self.ctx.engine,
                    &self.applied,
                    self.db.client(),
                    now,
                    std::mem::take(&mut self.status_due),
                )
            {
                self.status_txn = Some(self.db.commit(t, now));
            }
        }
        if let Some(id) = self.status_txn
            && let Some(o) = self.db.outcome(id)
        {
            self.status_due |= !o.is_success();
            self.status_txn = None;
        }
        if now >= self.next_stats {
            let ms = self.desired.as_ref().map_or(5000, |d| d.globals.stats_update_interval_ms);
            self.next_stats = now + Nanos::from_ms(ms);
            self.status_due = true;
            if self.configured_once
                && self.db.is_ours()
                && self.status_txn.is_none()
                && let Some(t) = report::statistics(&self.ctx.engine, &self.applied, self.db.client())
            {
                self.status_txn = Some(self.db.commit(t, now));
            }
        }
    }

    /// Whether links have come, gone or changed since the last call.
    fn host_changed(&mut self, now: Nanos) -> bool {
        if now >= self.next_trim {
            // Buffers of a burst go back to the system a while after it.
            self.next_trim = now + TRIM_INTERVAL;
            fv_packet::pool::trim(TRIM_KEEP);
        }
        let Some((net, seen)) = &mut self.links else { return false };
        if let Err(e) = net.turn(now, LINK_BUDGET) {
            log::warn!(target: "netlink_notifier", "following the host's links: {e}");
            return false;
        }
        let seq = net.tables().links.seq();
        std::mem::replace(seen, seq) != seq
    }

    /// Ends: replies leave, threads stop, with `cleanup` kernel devices of ours go.
    pub fn shut_down(mut self) {
        if let Some(u) = &mut self.unixctl {
            u.close_listener();
            for _ in 0..100 {
                u.flush();
                if !u.has_output() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let cleanup = self.ctx.exit == Some(true);
        self.ctx.engine.shut_down(cleanup);
        drop(self.embedded.take());
    }
}

/// Runs the switch until `exit` or a signal. `ready` is called once, after the first configuration
/// is in effect.
pub fn run(opts: SwitchOptions, clock: Clock, ready: &mut dyn FnMut(), mut signals: Signals) -> Result<(), Error> {
    let mut s = Switch::new(opts, clock)?;
    let mut told = false;
    while !signals.turn() && s.ctx.exit.is_none() {
        let busy = s.turn();
        if !told && s.is_ready() {
            told = true;
            ready();
        }
        signals.want(&mut s.poller);
        s.wait(busy)?;
    }
    s.shut_down();
    Ok(())
}

/// Runs a command. One that panics is answered with an error; the process goes on, since commands
/// read much and change little, and what they change is checked where it is used.
fn guarded(registry: &fv_core::Registry<Ctx>, ctx: &mut Ctx, name: &str, args: &[&str]) -> fv_core::Reply {
    let run = std::panic::AssertUnwindSafe(|| registry.run(ctx, name, args));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        log::error!(target: "unixctl", "command {name} failed inside; please report its arguments: {args:?}");
        Err(format!("{name}: internal error, see the log"))
    })
}

fn tls_of(opts: &SwitchOptions) -> Tls {
    let (tls, s) = (Tls::default(), &opts.ssl);
    tls.set_key_and_cert(s.private_key.as_deref(), s.certificate.as_deref());
    tls.set_ca(s.ca_cert.as_deref(), s.bootstrap_ca_cert);
    tls.set_peer_ca(s.peer_ca_cert.as_deref());
    tls.set_protocols(s.protocols.as_deref());
    tls.set_ciphers(s.ciphers.as_deref());
    tls.set_ciphersuites(s.ciphersuites.as_deref());
    tls
}
