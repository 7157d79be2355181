//! All dummy devices of a switch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use fv_core::{Clock, Nanos};
use parking_lot::Mutex;

use crate::device::{Device, DeviceError};
use crate::dummy::device::Dummy;
use crate::registry::{Env, Options, Registry};

/// Makes dummy devices, numbers their addresses and finds them by name. Cloning shares it.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    clock: Clock,
    next_mac: AtomicU32,
    devices: Mutex<BTreeMap<String, Weak<Dummy>>>,
}

impl World {
    /// `clock` dates captures.
    pub fn new(clock: Clock) -> World {
        World(Arc::new(Inner { clock, next_mac: AtomicU32::new(0xaa55_0000), devices: Mutex::default() }))
    }

    /// Offers the types `dummy`, `dummy-internal` and `dummy-pmd`.
    pub fn register(&self, registry: &mut Registry) {
        self.register_as(registry, "dummy", false);
        self.register_as(registry, "dummy-internal", false);
        self.register_as(registry, "dummy-pmd", true);
    }

    /// Offers dummy devices under any type name.
    pub fn register_as(&self, registry: &mut Registry, kind: &'static str, pmd: bool) {
        let world = self.clone();
        registry.register(kind, move |name, options, env| {
            world.open(name, kind, pmd, options, env).map(|d| d as Arc<dyn Device>)
        });
    }

    /// Makes a device.
    pub fn open(
        &self,
        name: &str,
        kind: &'static str,
        pmd: bool,
        options: &Options,
        env: &Env,
    ) -> Result<Arc<Dummy>, DeviceError> {
        let mut devices = self.0.devices.lock();
        if devices.get(name).is_some_and(|d| d.strong_count() > 0) {
            return Err(DeviceError::Exists(name.into()));
        }
        let [a, b, c, d] = self.0.next_mac.fetch_add(1, Relaxed).to_be_bytes();
        let device = Dummy::new(name, kind, pmd, [0xaa, 0x55, a, b, c, d], self.0.clock.clone(), env.clone())?;
        device.set_options(options)?;
        let device = Arc::new(device);
        devices.retain(|_, d| d.strong_count() > 0);
        devices.insert(name.into(), Arc::downgrade(&device));
        Ok(device)
    }

    pub fn device(&self, name: &str) -> Option<Arc<Dummy>> {
        self.0.devices.lock().get(name)?.upgrade()
    }

    /// All devices, by name.
    pub fn devices(&self) -> Vec<Arc<Dummy>> {
        self.0.devices.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Runs all sockets, without waiting; says whether anything happened.
    pub fn turn(&self, now: Nanos) -> bool {
        self.devices().iter().fold(false, |active, d| d.turn(now) | active)
    }

    /// Some device has sockets: [`World::turn`] wants to be called every few milliseconds.
    pub fn has_streams(&self) -> bool {
        self.devices().iter().any(|d| d.has_stream())
    }
}
