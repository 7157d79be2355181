//! Carrying a plan out, and remembering what runs.

use std::collections::BTreeMap;

use fv_core::{Nanos, OfPort};

use crate::plan::{Plan, Step};
use crate::spec::*;

/// First wait before an interface that could not be opened is tried again; doubles up to the last.
const FIRST_RETRY: Nanos = Nanos::from_secs(1);
const LAST_RETRY: Nanos = Nanos::from_secs(60);

/// The engines, as configuration sees them. Each call does its work before it returns; an error is
/// the text for the row's `error` column and stops nothing else.
pub trait Targets {
    fn set_globals(&mut self, g: &Globals);
    fn add_bridge(&mut self, b: &BridgeSpec) -> Result<(), String>;
    fn update_bridge(&mut self, b: &BridgeSpec);
    fn remove_bridge(&mut self, name: &str);
    fn add_interface(&mut self, bridge: &str, i: &IfaceSpec) -> Result<OfPort, String>;
    fn update_interface(&mut self, bridge: &str, i: &IfaceSpec) -> Result<(), String>;
    fn remove_interface(&mut self, bridge: &str, name: &str);
    /// The VLAN settings and members of all ports of a bridge, after its interfaces are open.
    fn set_ports(&mut self, bridge: &str, ports: &[PortSpec]);
    fn set_controllers(&mut self, bridge: &str, controllers: &[ControllerSpec]);
    /// All steps are done: publish.
    fn commit(&mut self);
}

/// What runs.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    pub globals: Option<Globals>,
    pub bridges: BTreeMap<String, AppliedBridge>,
    pub failed_bridges: BTreeMap<String, FailedBridge>,
}

#[derive(Clone, Debug)]
pub struct FailedBridge {
    pub spec: BridgeSpec,
    pub error: String,
    pub retry_at: Nanos,
}

#[derive(Clone, Debug, Default)]
pub struct AppliedBridge {
    pub spec: BridgeSpec,
    pub ifaces: BTreeMap<String, AppliedIface>,
}

#[derive(Clone, Debug)]
pub struct AppliedIface {
    pub spec: IfaceSpec,
    /// The OpenFlow port, unless it failed.
    pub ofport: Option<OfPort>,
    pub failed: Option<Failed>,
    /// An option that could not be set on an open interface.
    pub warning: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Failed {
    pub error: String,
    pub retry_at: Nanos,
    pub wait: Nanos,
}

impl Applied {
    /// When something that failed is due to be tried again.
    pub fn next_retry(&self) -> Option<Nanos> {
        let ifaces = self.bridges.values().flat_map(|b| b.ifaces.values()).filter_map(|i| i.failed.as_ref());
        ifaces.map(|f| f.retry_at).chain(self.failed_bridges.values().map(|f| f.retry_at)).min()
    }

    /// Makes everything that failed due now: something outside has changed.
    pub fn retry_now(&mut self) {
        for i in self.bridges.values_mut().flat_map(|b| b.ifaces.values_mut()) {
            if let Some(f) = &mut i.failed {
                f.retry_at = Nanos::ZERO;
                f.wait = FIRST_RETRY;
            }
        }
    }

    /// The device of an open interface has vanished: the interface is closed, and soon tried again.
    pub fn lost(&mut self, bridge: &str, name: &str, t: &mut dyn Targets, now: Nanos) {
        let Some(i) = self.bridges.get_mut(bridge).and_then(|b| b.ifaces.get_mut(name)) else { return };
        if i.failed.is_some() {
            return;
        }
        t.remove_interface(bridge, name);
        i.ofport = None;
        i.failed = Some(Failed {
            error: format!("could not open network device {name} (No such device)"),
            retry_at: now + FIRST_RETRY,
            wait: FIRST_RETRY,
        });
    }

    /// The interface named `name`, wherever it is.
    pub fn iface(&self, name: &str) -> Option<&AppliedIface> {
        self.bridges.values().find_map(|b| b.ifaces.get(name))
    }
}

/// Does the steps in order. `applied` follows; an error of one step stays with its row.
pub fn apply(plan: &Plan, applied: &mut Applied, t: &mut dyn Targets, now: Nanos) {
    for step in &plan.steps {
        one(step, applied, t, now);
    }
    if !plan.steps.is_empty() {
        t.commit();
    }
}

fn one(step: &Step, applied: &mut Applied, t: &mut dyn Targets, now: Nanos) {
    match step {
        Step::SetGlobals(g) => {
            t.set_globals(g);
            applied.globals = Some((**g).clone());
        }
        Step::RemoveInterface { bridge, name } => {
            if let Some(i) = applied.bridges.get_mut(bridge).and_then(|b| b.ifaces.remove(name))
                && i.failed.is_none()
            {
                t.remove_interface(bridge, name);
            }
        }
        Step::RemoveBridge { name } => {
            t.remove_bridge(name);
            applied.bridges.remove(name);
        }
        Step::AddBridge(b) => match t.add_bridge(b) {
            Ok(()) => {
                applied.failed_bridges.remove(&b.name);
                applied.bridges.insert(b.name.clone(), AppliedBridge { spec: (**b).clone(), ..Default::default() });
            }
            Err(error) => {
                log::error!(target: "bridge", "failed to create bridge {}: {error}", b.name);
                let f = FailedBridge { spec: (**b).clone(), error, retry_at: now + LAST_RETRY };
                applied.failed_bridges.insert(b.name.clone(), f);
            }
        },
        Step::UpdateBridge(b) => {
            t.update_bridge(b);
            if let Some(a) = applied.bridges.get_mut(&b.name) {
                let (ports, controllers) = (std::mem::take(&mut a.spec.ports), std::mem::take(&mut a.spec.controllers));
                a.spec = BridgeSpec { ports, controllers, ..(**b).clone() };
            }
        }
        Step::AddInterface { bridge, iface, .. } => add_interface(bridge, iface, applied, t, now),
        Step::UpdateInterface { bridge, iface } => {
            let r = t.update_interface(bridge, iface);
            if let Some(a) = applied.bridges.get_mut(bridge).and_then(|b| b.ifaces.get_mut(&iface.name)) {
                a.spec = (**iface).clone();
                a.warning = r.err();
            }
        }
        Step::SetPorts { bridge, ports } => {
            if let Some(a) = applied.bridges.get_mut(bridge) {
                t.set_ports(bridge, ports);
                a.spec.ports = ports.iter().map(|p| (p.name.clone(), p.clone())).collect();
            }
        }
        Step::SetControllers { bridge, controllers } => {
            if let Some(a) = applied.bridges.get_mut(bridge) {
                t.set_controllers(bridge, controllers);
                a.spec.controllers.clone_from(controllers);
            }
        }
    }
}

fn add_interface(bridge: &str, i: &IfaceSpec, applied: &mut Applied, t: &mut dyn Targets, now: Nanos) {
    let Some(b) = applied.bridges.get_mut(bridge) else { return };
    let wait = b.ifaces.get(&i.name).and_then(|a| a.failed.as_ref()).map_or(FIRST_RETRY, |f| f.wait);
    let (ofport, failed) = match t.add_interface(bridge, i) {
        Ok(p) => (Some(p), None),
        Err(error) => {
            // The first failure is news, its repetitions are not.
            if b.ifaces.get(&i.name).and_then(|a| a.failed.as_ref()).is_none_or(|f| f.error != error) {
                log::warn!(target: "bridge", "{error}");
            }
            let next = Nanos((wait.0 * 2).min(LAST_RETRY.0));
            (None, Some(Failed { error, retry_at: now + wait, wait: next }))
        }
    };
    b.ifaces.insert(i.name.clone(), AppliedIface { spec: i.clone(), ofport, failed, warning: None });
}
