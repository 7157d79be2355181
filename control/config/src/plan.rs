//! The difference between what runs and what is asked for, as printable steps in their order.

use std::fmt;

use fv_core::Nanos;

use crate::apply::Applied;
use crate::spec::*;

/// One step. Removals come first, so that a name or number can be taken over in the same change.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    SetGlobals(Box<Globals>),
    RemoveInterface { bridge: String, name: String },
    RemoveBridge { name: String },
    AddBridge(Box<BridgeSpec>),
    UpdateBridge(Box<BridgeSpec>),
    AddInterface { bridge: String, iface: Box<IfaceSpec>, retry: bool },
    UpdateInterface { bridge: String, iface: Box<IfaceSpec> },
    SetPorts { bridge: String, ports: Vec<PortSpec> },
    SetControllers { bridge: String, controllers: Vec<ControllerSpec> },
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::SetGlobals(_) => write!(f, "set switch-wide settings"),
            Step::RemoveInterface { bridge, name } => write!(f, "{bridge}: remove interface {name}"),
            Step::RemoveBridge { name } => write!(f, "{name}: remove bridge"),
            Step::AddBridge(b) => write!(f, "{}: add bridge", b.name),
            Step::UpdateBridge(b) => write!(f, "{}: update bridge", b.name),
            Step::AddInterface { bridge, iface, retry } => {
                let again = if *retry { " (again)" } else { "" };
                write!(f, "{bridge}: add interface {} type {}{again}", iface.name, iface.kind)
            }
            Step::UpdateInterface { bridge, iface } => write!(f, "{bridge}: update interface {}", iface.name),
            Step::SetPorts { bridge, ports } => write!(f, "{bridge}: set {} ports", ports.len()),
            Step::SetControllers { bridge, controllers } => {
                write!(f, "{bridge}: set {} controllers", controllers.len())
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|s| writeln!(f, "{s}"))
    }
}

/// What must be done to get from `now` to `want`. Interfaces that could not be opened before are
/// tried again when their time has come.
pub fn plan(now: &Applied, want: &Desired, time: Nanos) -> Plan {
    let mut steps = Vec::new();
    if now.globals.as_ref() != Some(&want.globals) {
        steps.push(Step::SetGlobals(Box::new(want.globals.clone())));
    }
    removals(now, want, &mut steps);
    for (name, b) in &want.bridges {
        bridge(now, name, b, time, &mut steps);
    }
    Plan { steps }
}

/// A bridge must be made anew when its datapath changes.
fn same_bridge(a: &BridgeSpec, b: &BridgeSpec) -> bool {
    a.datapath_type == b.datapath_type && a.uuid == b.uuid
}

/// An interface must be opened anew when its type changes; options may change in place.
fn same_iface(a: &IfaceSpec, b: &IfaceSpec) -> bool {
    a.kind == b.kind && a.ofport_request_conflicts(b)
}

impl IfaceSpec {
    /// True if a change of the requested port number needs no new port.
    fn ofport_request_conflicts(&self, o: &IfaceSpec) -> bool {
        self.ofport_request == o.ofport_request || o.ofport_request.is_none()
    }
}

fn removals(now: &Applied, want: &Desired, steps: &mut Vec<Step>) {
    for (name, a) in &now.bridges {
        let keep = want.bridges.get(name).filter(|b| same_bridge(&a.spec, b));
        for (iname, ai) in &a.ifaces {
            let wanted = keep.and_then(|b| b.ports.values().find_map(|p| p.interfaces.get(iname)));
            if !wanted.is_some_and(|w| same_iface(&ai.spec, w)) {
                steps.push(Step::RemoveInterface { bridge: name.clone(), name: iname.clone() });
            }
        }
        if keep.is_none() {
            steps.push(Step::RemoveBridge { name: name.clone() });
        }
    }
}

/// The part of a bridge that is not ports or controllers.
fn head(b: &BridgeSpec) -> BridgeSpec {
    BridgeSpec { ports: Default::default(), controllers: Vec::new(), ..b.clone() }
}

fn bridge(now: &Applied, name: &str, b: &BridgeSpec, time: Nanos, steps: &mut Vec<Step>) {
    let old = now.bridges.get(name).filter(|a| same_bridge(&a.spec, b));
    match old {
        None => {
            if now.failed_bridges.get(name).is_some_and(|f| f.spec == head(b) && f.retry_at > time) {
                return;
            }
            steps.push(Step::AddBridge(Box::new(head(b))));
        }
        Some(a) if head(&a.spec) != head(b) => steps.push(Step::UpdateBridge(Box::new(head(b)))),
        Some(_) => {}
    }
    let mut ports_changed = old.is_none();
    // The bridge's own interface first: it gives the bridge its address.
    let ifaces = b.ports.values().flat_map(|p| p.interfaces.values());
    let (own, mut others): (Vec<_>, Vec<_>) = ifaces.partition(|i| i.name == name);
    // Requested port numbers before those that the bridge may choose.
    others.sort_by_key(|i| i.ofport_request.is_none());
    for i in own.into_iter().chain(others) {
        match old.and_then(|a| a.ifaces.get(&i.name)) {
            Some(a) if same_iface(&a.spec, i) => match &a.failed {
                Some(f) if a.spec != *i || f.retry_at <= time => {
                    let retry = a.spec == *i;
                    steps.push(Step::AddInterface { bridge: name.into(), iface: Box::new(i.clone()), retry });
                    ports_changed = true;
                }
                Some(_) => {}
                None if a.spec != *i => {
                    steps.push(Step::UpdateInterface { bridge: name.into(), iface: Box::new(i.clone()) });
                }
                None => {}
            },
            _ => {
                steps.push(Step::AddInterface { bridge: name.into(), iface: Box::new(i.clone()), retry: false });
                ports_changed = true;
            }
        }
    }
    if ports_changed || old.is_none_or(|a| a.spec.ports != b.ports) {
        steps.push(Step::SetPorts { bridge: name.into(), ports: b.ports.values().cloned().collect() });
    }
    if old.is_none_or(|a| a.spec.controllers != b.controllers) {
        steps.push(Step::SetControllers { bridge: name.into(), controllers: b.controllers.clone() });
    }
}
