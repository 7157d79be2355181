//! [`Dp`]: a datapath by name. Owns ports, flows and the control thread's worker; other workers are
//! made here and owned by their threads.

mod staff;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fv_core::{Clock, DpPort, Nanos, Ufid};
use fv_dpif::{
    Datapath, DpError, DpPortInfo, DpStats, DropReason, FlowDump, FlowHandle, FlowPut, FlowStats, Marks, Meter,
    Program, QueueProgress, UpcallHandler, Vport, WorkerId,
};
use fv_flow::DpKey;
use fv_netdev::{Device, PortStats};
use fv_packet::Packet;
use parking_lot::Mutex;

use crate::assign::WorkerKind;
use crate::flow::Flow;
use crate::lookup::CacheUse;
use crate::main_worker::MainWorker;
use crate::ports::{Port, PortQueue, PortTable};
use crate::shared::Shared;
use crate::trace;
use crate::tunnel::Tunnel;
use crate::worker::mailbox::{Ack, Mailbox, Msg};
use crate::worker::rxq::{Life, Rxq};
use crate::worker::stats::{Snapshot, Stat};
use crate::worker::tx::PortTx;
use crate::worker::{TurnResult, Worker, WorkerHandle};
use staff::Staff;

/// Packets that may wait to be executed while the control thread's worker is busy.
const EXECUTE_MAX: usize = 4096;

/// A packet to execute.
struct Execution {
    packet: Packet,
    key: DpKey,
    program: Program,
}

pub use staff::{Deal, QueueInfo};

pub struct Dp {
    kind: String,
    clock: Clock,
    ticks: fn() -> u64,
    shared: Arc<Shared>,
    ports: Mutex<PortTable>,
    workers: Mutex<Vec<WorkerHandle>>,
    staff: Mutex<Staff>,
    cache_use: Mutex<CacheUse>,
    vlan_limit: Mutex<u8>,
    main: MainWorker,
    main_mailbox: Arc<Mailbox>,
    executions: Mutex<VecDeque<Execution>>,
    /// What workers counted that are gone.
    gone: Mutex<Snapshot>,
}

impl Dp {
    /// `kind` is the datapath type ("netdev", "dummy"). `ticks` reads a cheap clock for cycle
    /// accounting and may always return 0.
    pub fn new(name: &str, kind: &str, clock: Clock, ticks: fn() -> u64) -> Arc<Dp> {
        let shared = Arc::new(Shared::new(name));
        let handle = WorkerHandle::new(WorkerId::MAIN, WorkerKind::Main, None, 0);
        Arc::new(Dp {
            kind: kind.into(),
            clock,
            ticks,
            shared: shared.clone(),
            ports: Mutex::default(),
            workers: Mutex::new(vec![handle.clone()]),
            staff: Mutex::default(),
            cache_use: Mutex::default(),
            vlan_limit: Mutex::new(1),
            main_mailbox: handle.mailbox.clone(),
            main: MainWorker::new(Worker::new(handle, shared, ticks)),
            executions: Mutex::default(),
            gone: Mutex::default(),
        })
    }

    /// The meters that programs may name, instead of those before.
    pub fn set_meters(&self, meters: impl IntoIterator<Item = Arc<Meter>>) {
        let mut by_number: Vec<Option<Arc<Meter>>> = Vec::new();
        for m in meters {
            let n = m.id().number() as usize;
            if n >= by_number.len() {
                by_number.resize(n + 1, None);
            }
            by_number[n] = Some(m);
        }
        self.shared.meters.store(Arc::new(by_number));
    }

    /// The ports that are tunnels. One that was there before goes on counting.
    pub fn set_tunnels(&self, tunnels: impl IntoIterator<Item = (DpPort, Vport)>) {
        let before = self.shared.tunnels.load_full();
        let mut by_number: Vec<Option<Arc<Tunnel>>> = Vec::new();
        for (port, vport) in tunnels {
            let n = port.0 as usize;
            if n >= by_number.len() {
                by_number.resize(n + 1, None);
            }
            let same = before.get(n).cloned().flatten().filter(|t| t.vport == vport);
            by_number[n] = Some(same.unwrap_or_else(|| Arc::new(Tunnel::new(vport))));
        }
        self.shared.tunnels.store(Arc::new(by_number));
    }

    /// UDP source ports of tunnels: `min..max`.
    pub fn set_tunnel_ports(&self, min: u16, max: u16) {
        self.shared.tunnel_ports.set(min, max);
    }

    // Ports.

    /// Opens the device's queues and gives them to workers. The port is usable when this returns on
    /// the control thread, and on others at their next turn.
    pub fn add_port(&self, device: Arc<dyn Device>, wanted: Option<DpPort>) -> Result<DpPort, DpError> {
        let number = {
            let mut ports = self.ports.lock();
            let number = ports.choose(device.name(), wanted, self.kind == "dummy")?;
            let tx = Arc::new(open_tx(number, &*device)?);
            let ack = Ack::new();
            let (rx, queues) = open_rx(number, &*device, 0, &ack)?;
            ports.insert(Port { number, device, tx: tx.clone(), queues, ack });
            for worker in self.workers.lock().iter() {
                worker.mailbox.send(Msg::AddTx(tx.clone()));
            }
            // New queues start with the control thread and move from there to where they belong.
            for queue in rx {
                self.main_mailbox.send(Msg::AddQueue(Box::new(queue)));
            }
            number
        };
        self.place_new(number);
        Ok(number)
    }

    /// Takes a port away. The device's queues are closed when the returned acknowledgement is done.
    pub fn del_port(&self, port: DpPort) -> Result<Arc<Ack>, DpError> {
        let gone = self.ports.lock().remove(port).ok_or(DpError::NoSuchPort)?;
        gone.queues.iter().for_each(|q| q.closed.store(true, Ordering::Release));
        let ack = gone.ack.clone();
        {
            let workers = self.workers.lock();
            for worker in workers.iter() {
                worker.mailbox.send(Msg::DropPort(port, ack.token()));
            }
        }
        drop(gone);
        self.poke_main();
        Ok(ack)
    }

    /// Closes and opens the queues of a port, under the same number, after its device asked for it.
    /// Waits at most `patience` for workers to let go of the old ones.
    pub fn reopen_port(&self, port: DpPort, patience: Duration) -> Result<(), DpError> {
        let device = self.device(port).ok_or(DpError::NoSuchPort)?;
        self.del_port(port)?.wait(patience);
        self.add_port(device, Some(port)).map(|_| ())
    }

    /// Opens or closes queues of a port, so that it has as many as its device has by now; those that stay lose
    /// nothing. Says whether there was anything to do.
    pub fn resize_port(&self, port: DpPort) -> Result<bool, DpError> {
        {
            let mut ports = self.ports.lock();
            let p = ports.find_mut(port).ok_or(DpError::NoSuchPort)?;
            let (n_rxq, n_txq) = (p.device.n_rxq(), p.device.n_txq());
            if (n_rxq, n_txq) == (p.queues.len(), p.tx.len()) {
                return Ok(false);
            }
            let tx = Arc::new(open_tx(port, &*p.device)?);
            tx.set_by_hash(p.tx.is_by_hash());
            let (rx, mut queues) = open_rx(port, &*p.device, p.queues.len(), &p.ack)?;
            p.tx = tx.clone();
            p.queues.append(&mut queues);
            for gone in p.queues.drain(n_rxq.min(p.queues.len())..) {
                gone.closed.store(true, Ordering::Release);
            }
            let ack = p.ack.clone();
            for worker in self.workers.lock().iter() {
                worker.mailbox.send(Msg::AddTx(tx.clone()));
                worker.mailbox.send(Msg::DropQueues(port, ack.token()));
            }
            for queue in rx {
                self.main_mailbox.send(Msg::AddQueue(Box::new(queue)));
            }
        }
        self.place_new(port);
        Ok(true)
    }

    pub fn port_by_name(&self, name: &str) -> Option<DpPort> {
        self.ports.lock().by_name(name).map(|p| p.number)
    }

    pub fn device(&self, port: DpPort) -> Option<Arc<dyn Device>> {
        self.ports.lock().find(port).map(|p| p.device.clone())
    }

    pub fn port_stats(&self, port: DpPort) -> Option<PortStats> {
        self.device(port).map(|d| d.stats())
    }

    // Settings of all workers.

    pub fn cache_use(&self) -> CacheUse {
        *self.cache_use.lock()
    }

    /// `emc-enable`: a port whose lookups never ask the cache, unless it is set to be asked always. Says
    /// what was before.
    pub fn enable_cache(&self, port: DpPort, enabled: bool) -> Result<bool, DpError> {
        let ports = self.ports.lock();
        let port = ports.find(port).ok_or(DpError::NoSuchPort)?;
        let mut was = true;
        for queue in &port.queues {
            was &= !queue.stats.cache.forbid(!enabled);
        }
        Ok(was)
    }

    /// How lookups use the tag cache, on every worker.
    pub fn set_cache_use(&self, cache_use: CacheUse) {
        let workers = self.workers.lock();
        *self.cache_use.lock() = cache_use;
        for worker in workers.iter() {
            worker.mailbox.send(Msg::CacheUse(cache_use));
        }
    }

    /// Tags that keys look at: `other_config:vlan-limit`.
    pub fn set_vlan_limit(&self, limit: u8) {
        let workers = self.workers.lock();
        *self.vlan_limit.lock() = limit;
        for worker in workers.iter() {
            worker.mailbox.send(Msg::VlanLimit(limit));
        }
    }

    // The control thread's worker.

    /// One turn of worker MAIN. Does nothing if another thread is in it, and says that there is more
    /// to do, or if this thread is, further up.
    pub fn turn_main(&self, now: Nanos, budget: usize) -> TurnResult {
        let Some(result) = self.main.enter(|main| main.turn(now, budget)) else {
            return TurnResult { more: !self.main.is_mine(), ..TurnResult::default() };
        };
        self.run_executions();
        result
    }

    /// Lets `f` look at worker MAIN, unless it is busy: what its sleep depends on.
    pub fn with_main<T>(&self, f: impl FnOnce(&Worker) -> T) -> Option<T> {
        self.main.enter(|main| f(main))
    }

    /// Has MAIN take its messages now, unless it is busy and will see them anyway.
    fn poke_main(&self) {
        self.main.enter(|main| main.take_messages(self.clock.now()));
        self.run_executions();
    }

    /// Executes what waits. Whoever holds the worker does it for all: an upcall that executes
    /// packets from inside a turn leaves them to that turn's thread.
    fn run_executions(&self) {
        while !self.executions.lock().is_empty() {
            let done = self.main.enter(|main| {
                while let Some(e) = self.pop_execution() {
                    main.execute(self.clock.now(), e.packet, &e.key, &e.program);
                }
            });
            if done.is_none() {
                return;
            }
            // Those that came in before the lock was given up are seen by the next round.
        }
    }

    fn pop_execution(&self) -> Option<Execution> {
        self.executions.lock().pop_front()
    }

    // Flows.

    fn tell(&self, worker: Option<WorkerId>, f: impl Fn(&Mailbox)) {
        for handle in self.workers.lock().iter() {
            if worker.is_none() || worker == Some(handle.id) {
                f(&handle.mailbox);
            }
        }
    }
}

/// Opens the receive queues from `first` on: for their worker, and for the port.
fn open_rx(
    port: DpPort,
    device: &dyn Device,
    first: usize,
    ack: &Arc<Ack>,
) -> Result<(Vec<Rxq>, Vec<PortQueue>), DpError> {
    let open = |q| {
        let rx = device.open_rxq(q).map_err(|error| DpError::Other(error.to_string()))?;
        let closed = Arc::<AtomicBool>::default();
        let life = Life { closed: closed.clone(), token: ack.token() };
        let mut queue = Rxq::new(port, q, rx, Arc::default(), life);
        queue.enabled = device.enabled_rxqs();
        let known = PortQueue::new(queue.stats.clone(), closed);
        Ok((queue, known))
    };
    (first..device.n_rxq()).map(open).collect()
}

fn open_tx(port: DpPort, device: &dyn Device) -> Result<PortTx, DpError> {
    let open = |q| device.open_txq(q).map_err(|error| DpError::Other(error.to_string()));
    let queues = (0..device.n_txq()).map(open).collect::<Result<Vec<_>, _>>()?;
    Ok(PortTx::new(port, device.offloads(), queues))
}

fn dp_stats(s: &Snapshot) -> DpStats {
    DpStats {
        hit: Stat::HITS.iter().map(|hit| s.value(*hit)).sum(),
        missed: s.value(Stat::Missed),
        lost: s.value(Stat::Lost),
        flows: 0,
    }
}

impl Datapath for Dp {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn set_upcall_handler(&self, handler: Option<Arc<dyn UpcallHandler>>) {
        self.shared.set_handler(handler);
    }

    fn ports(&self) -> Vec<DpPortInfo> {
        self.ports.lock().iter().map(Port::info).collect()
    }

    fn flow_put(&self, put: FlowPut) -> Result<Option<FlowStats>, DpError> {
        let registry = &self.shared.registry;
        if let (Some(ufid), false) = (put.ufid, put.create) {
            // Only what is there: no flow needs to be made to find it.
            let there = registry.find(ufid).ok_or(DpError::NotFound)?;
            return self.change(&there, put);
        }
        let flow = Flow::new(&put.key, &put.mask, put.ufid, put.program.clone(), put.worker);
        let there = registry.find(flow.ufid).or_else(|| registry.find_megaflow(flow.megaflow));
        // A flow without a name of its own may also be meant by one that covers its key, and must not
        // overlap with it.
        let there = there.or_else(|| match put.ufid {
            None => self.main.enter(|main| main.covering(&put.key)).flatten(),
            Some(_) => None,
        });
        if let Some(there) = there {
            return self.change(&there, put);
        }
        if !put.create {
            return Err(DpError::NotFound);
        }
        match self.shared.registry.insert(flow.clone()) {
            Ok(()) => {
                trace::flow_added(&flow);
                self.tell(put.worker, |mailbox| mailbox.add_flow(&flow));
                self.poke_main();
                Ok(None)
            }
            // Another thread was faster.
            Err(there) => self.change(&there, put),
        }
    }

    fn flow_del(&self, ufid: Ufid) -> Result<FlowStats, DpError> {
        let flow = self.shared.registry.remove(ufid).ok_or(DpError::NotFound)?;
        self.tell(None, |mailbox| mailbox.remove_flow(&flow));
        Ok(flow.stats())
    }

    fn flow_get(&self, ufid: Ufid) -> Option<FlowDump> {
        self.shared.registry.find(ufid).map(|flow| flow.dump())
    }

    fn flow_handle(&self, ufid: Ufid) -> Option<Arc<dyn FlowHandle>> {
        self.shared.registry.find(ufid).map(|flow| flow as Arc<dyn FlowHandle>)
    }

    fn flow_dump(&self, f: &mut dyn FnMut(FlowDump) -> bool) {
        self.shared.registry.each(|flow| f(flow.dump()));
    }

    fn flow_stats(&self, f: &mut dyn FnMut(Ufid, &FlowStats) -> bool) {
        self.shared.registry.each(|flow| f(flow.ufid, &flow.stats()));
    }

    fn flow_flush(&self) {
        self.shared.registry.each(|flow| {
            self.shared.registry.remove(flow.ufid);
            true
        });
        self.tell(None, Mailbox::sweep);
    }

    fn flow_count(&self) -> usize {
        self.shared.registry.len()
    }

    fn execute(&self, packet: Packet, key: &DpKey, program: &Program) {
        {
            let mut executions = self.executions.lock();
            if executions.len() == EXECUTE_MAX {
                return DropReason::UpcallQueueFull.count(1);
            }
            executions.push_back(Execution { packet, key: *key, program: program.clone() });
        }
        self.run_executions();
    }

    fn stats(&self) -> DpStats {
        DpStats { flows: self.flow_count() as u64, ..dp_stats(&self.totals()) }
    }

    fn set_marks(&self, marks: Arc<Marks>) {
        self.shared.set_marks(marks);
    }

    fn rx_progress(&self) -> Vec<QueueProgress> {
        let ports = self.ports.lock();
        let queues = ports.iter().flat_map(|p| p.queues.iter().enumerate().map(|(n, q)| (p.number, n, &q.stats)));
        let progress = |(port, queue, stats): (DpPort, usize, &Arc<crate::worker::stats::QueueStats>)| QueueProgress {
            port,
            queue,
            life: Arc::as_ptr(stats) as u64,
            delivered: stats.packets(),
            emptied: stats.emptied(),
        };
        queues.map(progress).collect()
    }

    fn look_into_queues(&self) {
        for worker in self.workers.lock().iter() {
            worker.mailbox.send(Msg::Ask(Box::new(Worker::look_everywhere)));
        }
    }
}

impl Dp {
    fn change(&self, there: &Flow, put: FlowPut) -> Result<Option<FlowStats>, DpError> {
        if !put.modify {
            return Err(if put.create { DpError::Exists } else { DpError::Invalid });
        }
        let before = there.stats();
        let old = there.code().source.clone();
        there.set_program(put.program);
        trace::flow_changed(there, &old);
        Ok(Some(before))
    }
}
