//! `userspace(pid=N,what,...)`.

use fv_core::DpPort;

use super::format::port_text;
use super::item::{Fields, Item};
use super::parse::port;
use super::{Names, Ports, TextError};
use crate::action::{ControllerUpcall, DpAction, SlowReasons, Userspace};

/// Bytes of opaque data at most: what fits one attribute.
const DATA_MAX: usize = 4096;
const INGRESS: u8 = 1;
const EGRESS: u8 = 2;

/// Zero without a prefix.
fn cookie(c: u64) -> String {
    if c == 0 { "0".into() } else { format!("{c:#x}") }
}

pub fn format(what: &Userspace, pid: u32, actions: bool, tunnel_out: Option<DpPort>, names: Option<Names>) -> String {
    let mut out = format!("userspace(pid={pid}");
    out.push_str(&match what {
        Userspace::SlowPath(reasons) => format!(",slow_path({})", slow_text(*reasons)),
        Userspace::Controller(c) => format!(
            ",controller(reason={},dont_send={},continuation={},recirc_id={},rule_cookie={},controller_id={},max_len={})",
            c.reason,
            u8::from(c.dont_send),
            u8::from(c.continuation),
            c.recirc_id,
            cookie(c.rule_cookie),
            c.controller_id,
            c.max_len
        ),
        Userspace::SFlow { vlan_tci, output } => {
            format!(",sFlow(vid={},pcp={},output={output})", vlan_tci & 0xfff, vlan_tci >> 13)
        }
        Userspace::FlowSample { probability, collector_set_id, obs_domain_id, obs_point_id, output, direction } => {
            let direction = match *direction {
                INGRESS => ",ingress",
                EGRESS => ",egress",
                _ => "",
            };
            format!(
                ",flow_sample(probability={probability},collector_set_id={collector_set_id},obs_domain_id={obs_domain_id},obs_point_id={obs_point_id},output_port={}{direction})",
                port_text(*output, names)
            )
        }
        Userspace::Ipfix { output } => format!(",ipfix(output_port={})", port_text(*output, names)),
        Userspace::Data(bytes) if bytes.is_empty() => String::new(),
        Userspace::Data(bytes) => {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            format!(",userdata({hex})")
        }
    });
    if actions {
        out.push_str(",actions");
    }
    if let Some(p) = tunnel_out {
        out.push_str(&format!(",tunnel_out_port={}", port_text(p, names)));
    }
    out.push(')');
    out
}

fn slow_text(reasons: SlowReasons) -> String {
    let names: Vec<&str> =
        SlowReasons::NAMES.iter().filter(|(r, ..)| reasons.contains(*r)).map(|(_, n, _)| *n).collect();
    if names.is_empty() { "0".into() } else { names.join(",") }
}

pub fn parse(i: &Item, ports: Ports) -> Result<DpAction, TextError> {
    let mut f = Fields::new(i.inner()?);
    let pid = f.need("pid", i.text)?.u32()?;
    let port_of = |i: Item| port(i.operand()?, ports).ok_or_else(|| i.bad());
    let what = if let Some(slow) = f.take("slow_path") {
        Userspace::SlowPath(slow_reasons(&slow)?)
    } else if let Some(c) = f.take("controller") {
        Userspace::Controller(controller(&c)?)
    } else if let Some(s) = f.take("sFlow") {
        let mut f = Fields::new(s.inner()?);
        let vid = f.need("vid", s.text)?.number(0xfff)? as u16;
        let pcp = f.need("pcp", s.text)?.number(7)? as u16;
        let output = f.need("output", s.text)?.u32()?;
        f.end()?;
        Userspace::SFlow { vlan_tci: vid | pcp << 13, output }
    } else if let Some(s) = f.take("flow_sample") {
        let mut f = Fields::new(s.inner()?);
        let sample = Userspace::FlowSample {
            probability: f.need("probability", s.text)?.u16()?,
            collector_set_id: f.need("collector_set_id", s.text)?.u32()?,
            obs_domain_id: f.need("obs_domain_id", s.text)?.u32()?,
            obs_point_id: f.need("obs_point_id", s.text)?.u32()?,
            output: port_of(f.need("output_port", s.text)?)?,
            direction: match (f.flag("ingress")?, f.flag("egress")?) {
                (false, false) => 0,
                (true, false) => INGRESS,
                (false, true) => EGRESS,
                (true, true) => return Err(s.bad()),
            },
        };
        f.end()?;
        sample
    } else if let Some(s) = f.take("ipfix") {
        let mut f = Fields::new(s.inner()?);
        let output = port_of(f.need("output_port", s.text)?)?;
        f.end()?;
        Userspace::Ipfix { output }
    } else if let Some(data) = f.take("userdata") {
        Userspace::Data(bytes(data.body.unwrap_or("x")).ok_or_else(|| data.bad())?)
    } else {
        Userspace::Data(Vec::new())
    };
    let with_actions = f.flag("actions")?;
    let tunnel_out_port = f.take("tunnel_out_port").map(port_of).transpose()?;
    f.end()?;
    Ok(DpAction::Userspace { what, pid, with_actions, tunnel_out_port })
}

fn slow_reasons(i: &Item) -> Result<SlowReasons, TextError> {
    let mut out = SlowReasons::default();
    let names = i.body.ok_or_else(|| i.bad())?.split([',', '|']).filter(|n| !n.is_empty() && *n != "0");
    for name in names {
        let known = SlowReasons::NAMES.iter().find(|(_, n, _)| *n == name);
        out |= known.ok_or_else(|| i.bad())?.0;
    }
    Ok(out)
}

fn controller(c: &Item) -> Result<ControllerUpcall, TextError> {
    let mut f = Fields::new(c.inner()?);
    let flag = |i: &Item| i.number(1).map(|v| v == 1);
    let upcall = ControllerUpcall {
        reason: f.need("reason", c.text)?.u8()?,
        dont_send: flag(&f.need("dont_send", c.text)?)?,
        continuation: flag(&f.need("continuation", c.text)?)?,
        recirc_id: f.need("recirc_id", c.text)?.u32()?,
        rule_cookie: f.need("rule_cookie", c.text)?.u64()?,
        controller_id: f.need("controller_id", c.text)?.u16()?,
        max_len: f.need("max_len", c.text)?.u16()?,
        state: 0,
    };
    f.end()?;
    Ok(upcall)
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let whole = text.is_ascii() && text.len().is_multiple_of(2) && text.len() <= 2 * DATA_MAX;
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    if whole { (0..text.len()).step_by(2).map(byte).collect() } else { None }
}
