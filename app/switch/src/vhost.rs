//! The thread that talks to vhost-user front ends, so that neither configuration nor a long command keeps a guest
//! waiting.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fv_core::{Clock, Nanos};
use fv_netdev::Registry;
use fv_netdev_vhost::{Hub, Hubs};
use fv_rpc::poll::SourceId;
use fv_rpc::{Interest, Poller, Waker};

use crate::threads::AbortOnPanic;

pub struct Vhost {
    hubs: Hubs,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Vhost {
    pub fn start(clock: Clock) -> std::io::Result<Vhost> {
        let (hub, hubs) = fv_netdev_vhost::hub()?;
        let poller = Poller::new()?;
        let (waker, stop) = (poller.waker(), Arc::new(AtomicBool::new(false)));
        let s = stop.clone();
        let serve = move || serve(hub, poller, &clock, &s);
        let thread = std::thread::Builder::new().name("vhost".into()).spawn(serve)?;
        Ok(Vhost { hubs, stop, waker, thread: Some(thread) })
    }

    /// Offers its interface types.
    pub fn register(&self, registry: &mut Registry) {
        fv_netdev_vhost::register(&self.hubs, registry);
    }
}

impl Drop for Vhost {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

fn serve(mut hub: Hub, mut poller: Poller, clock: &Clock, stop: &AtomicBool) {
    let _guard = AbortOnPanic;
    poller.register(SourceId::fresh(), hub.as_fd(), Interest::READ);
    while !stop.load(Ordering::Acquire) {
        poller.wake_at(hub.turn(clock.now()).unwrap_or(Nanos::MAX));
        if let Err(e) = poller.wait(None, clock) {
            log::error!(target: "vhost", "cannot wait for front ends: {e}");
            return;
        }
    }
}

/// For the handler of SIGBUS: whether the fault at `address` was in a guest's memory, which its front end has taken
/// away, and is mended. Does nothing that a signal handler may not do.
pub fn repair_fault(address: usize) -> bool {
    fv_netdev_vhost::mapping::repair(address)
}
