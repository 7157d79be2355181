//! The commands of the control socket, as data: one file per family.

mod bridge;
mod cache;
mod choices;
mod detrace;
mod dpctl;
mod dpif;
mod dummy;
mod fdb;
mod offload;
mod perf;
mod pmd;
mod process;
mod protocols;
mod time;
mod trace;
mod tunnel;
mod upcall;

use std::collections::BTreeMap;

use fv_core::{DpPort, OfPort, Registry};
use fv_dpif::Datapath;

use crate::datapaths::DpInst;
use crate::engine::{Bridge, Engine};

/// What commands work on.
pub struct Ctx {
    pub engine: Engine,
    list: String,
    /// Some: the process is to end; true: with cleanup.
    pub exit: Option<bool>,
    pub coverage: process::Coverage,
    ssl: Option<(String, String, String, bool)>,
    /// What `subtable-lookup-prio-set` was told last.
    subtable_lookup_priority: u8,
}

impl Ctx {
    pub fn new(engine: Engine, list: String) -> Ctx {
        let coverage = process::Coverage::new(engine.clock.now());
        Ctx { engine, list, exit: None, coverage, ssl: None, subtable_lookup_priority: 1 }
    }

    /// Work that a command left for the next turn.
    pub fn pending_work(&self) -> bool {
        self.exit.is_some()
    }

    /// TLS files named by the database; the command line's have the last word.
    pub fn apply_ssl(&mut self, wanted: &Option<(String, String, String, bool)>) {
        if self.ssl == *wanted || self.engine.opts.ssl.private_key.is_some() {
            return;
        }
        self.ssl.clone_from(wanted);
        if let Some((key, cert, ca, bootstrap)) = wanted {
            let path = |s: &String| (!s.is_empty()).then(|| std::path::PathBuf::from(s));
            self.engine.tls.set_key_and_cert(path(key).as_deref(), path(cert).as_deref());
            self.engine.tls.set_ca(path(ca).as_deref(), *bootstrap);
        }
    }

    fn bridge(&self, name: &str) -> Result<&Bridge, String> {
        self.engine.bridges.get(name).ok_or_else(|| "no such bridge".into())
    }

    /// The datapath of a bridge.
    fn dp_of(&self, b: &Bridge) -> Result<&DpInst, String> {
        let kind = self.engine.world.kind_of(b.of.id()).ok_or("no such bridge")?;
        self.engine.world.dps.find(kind).ok_or_else(|| "no such datapath".into())
    }

    /// The datapath that `name` means: `type@name`, `name`, or with None the only one.
    fn dp(&self, name: Option<&str>) -> Result<&DpInst, String> {
        let mut all = self.engine.world.dps.iter();
        match name {
            None => match (all.next(), all.next()) {
                (Some((_, i)), None) => Ok(i),
                (None, _) => Err("no datapaths exist".into()),
                _ => Err("multiple datapaths, specify one".into()),
            },
            Some(n) => {
                let wanted = n.rsplit_once('@').map_or((None, n), |(t, n)| (Some(t), n));
                all.find(|(k, i)| wanted.0.is_none_or(|t| t == k.as_str()) && i.dp.name() == wanted.1)
                    .map(|(_, i)| i)
                    .ok_or_else(|| "ovs-vswitchd: datapath not found (Invalid argument)".to_string())
            }
        }
    }
}

/// `type@name`, as listings name a datapath.
fn full_name(i: &DpInst) -> String {
    format!("{}@{}", i.dp.kind(), i.dp.name())
}

/// Names of a datapath's ports by number.
fn port_names(i: &DpInst) -> BTreeMap<u32, String> {
    i.dp.ports().into_iter().map(|p| (p.port.0, p.name)).collect()
}

/// A port of a datapath by number or name.
fn port_lookup(i: &DpInst, s: &str) -> Option<u32> {
    i.dp.port_by_name(s).map(|p: DpPort| p.0)
}

/// A port of a bridge by name.
fn of_port_lookup(b: &Bridge, s: &str) -> Option<OfPort> {
    b.of.port_by_name(s).map(|p| p.ofp)
}

/// Adds every command.
pub fn register(r: &mut Registry<Ctx>) {
    r.add(process::COMMANDS);
    r.add(&fv_rpc::vlog::commands::<Ctx>());
    r.add(&fv_rpc::unixctl::commands::<Ctx>());
    r.add(bridge::COMMANDS);
    r.add(fdb::COMMANDS);
    r.add(protocols::COMMANDS);
    r.add(dpif::COMMANDS);
    r.add(dpctl::COMMANDS);
    r.add(upcall::COMMANDS);
    r.add(time::COMMANDS);
    r.add(dummy::COMMANDS);
    r.add(detrace::COMMANDS);
    r.add(trace::COMMANDS);
    r.add(cache::COMMANDS);
    r.add(pmd::COMMANDS);
    r.add(perf::COMMANDS);
    r.add(choices::COMMANDS);
    r.add(offload::COMMANDS);
    r.add(tunnel::COMMANDS);
}

/// The text of `list-commands`.
pub fn list_text(r: &Registry<Ctx>) -> String {
    fv_rpc::unixctl::command_list(r.list())
}
