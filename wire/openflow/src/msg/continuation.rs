//! What a packet-in carries of a pipeline that was paused, so that a controller can let it go on.
//!
//! To controllers it is opaque; it has the properties of the reference's, which `ovs-ofctl` prints.

use crate::action::{Action, decode_actions, decode_instructions, encode_actions, encode_instructions};
use crate::error::OfError;
use crate::version::Version;
use crate::wire::{Prop, Put, Reader, put_prop};

/// A paused pipeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Continuation {
    /// Identifies the bridge.
    pub bridge: [u8; 16],
    /// What was pushed, the first at the bottom: big-endian, at most [`MAX_PUSHED`] bytes each.
    pub stack: Vec<Vec<u8>>,
    /// Mirrors that have the packet already.
    pub mirrors: u32,
    pub conntracked: bool,
    /// What is left to do, with [`Action::UnrollXlate`] where table and cookie change.
    pub actions: Vec<Action>,
    pub action_set: Vec<Action>,
    /// The datapath port of entry.
    pub odp_port: Option<u32>,
}

/// Bytes of the widest field.
pub const MAX_PUSHED: usize = fv_flow::field::TUN_OPTION_MAX as usize;

#[allow(missing_docs)]
mod kind {
    pub const BRIDGE: u16 = 0x8000;
    pub const STACK: u16 = 0x8001;
    pub const MIRRORS: u16 = 0x8002;
    pub const CONNTRACKED: u16 = 0x8003;
    pub const TABLE_ID: u16 = 0x8004;
    pub const COOKIE: u16 = 0x8005;
    pub const ACTIONS: u16 = 0x8006;
    pub const ACTION_SET: u16 = 0x8007;
    pub const ODP_PORT: u16 = 0x8008;
    /// Ours: instructions, which lists of actions cannot hold, in the form of OpenFlow 1.3.
    pub const INSTRUCTIONS: u16 = 0x8010;
}

impl Continuation {
    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        put_prop(out, kind::BRIDGE, |o| o.put(&self.bridge).done());
        for item in self.stack.iter().rev() {
            put_prop(out, kind::STACK, |o| o.put(item).done());
        }
        if self.mirrors != 0 {
            put_prop(out, kind::MIRRORS, |o| o.u32(self.mirrors).done());
        }
        if self.conntracked {
            put_prop(out, kind::CONNTRACKED, |_| ());
        }
        // Instructions one by one: a list of them has an order of its own.
        let same = |a: &&Action, b: &&Action| class(a) == Class::Action && class(b) == Class::Action;
        let all: Vec<&Action> = self.actions.iter().collect();
        for run in all.chunk_by(same) {
            match run {
                [Action::UnrollXlate { table, cookie }] => {
                    put_prop(out, kind::TABLE_ID, |o| o.u8(*table).done());
                    put_prop(out, kind::COOKIE, |o| o.zero(4).u64(*cookie).done());
                }
                [first, ..] if class(first) == Class::Instruction => {
                    put_list(out, kind::INSTRUCTIONS, run, |o, l| encode_instructions(o, l, Version::V13));
                }
                _ => put_list(out, kind::ACTIONS, run, |o, l| encode_actions(o, l, v)),
            }
        }
        if !self.action_set.is_empty() {
            let set: Vec<&Action> = self.action_set.iter().collect();
            put_list(out, kind::ACTION_SET, &set, |o, l| encode_actions(o, l, v));
        }
        if let Some(p) = self.odp_port {
            put_prop(out, kind::ODP_PORT, |o| o.u32(p).done());
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>, v: Version) -> Result<Continuation, OfError> {
        let mut c = Continuation::default();
        // What the next list of actions belongs to.
        let (mut table, mut cookie, mut place) = (0, 0, false);
        while !r.is_empty() {
            let mut p = Prop::pull(r)?;
            let b = &mut p.body;
            match p.kind {
                kind::BRIDGE => c.bridge = b.array()?,
                kind::STACK if b.len() <= MAX_PUSHED => c.stack.insert(0, b.take_rest().to_vec()),
                kind::STACK => return Err(OfError::BpcBadLen),
                kind::MIRRORS => c.mirrors = b.u32()?,
                kind::CONNTRACKED => c.conntracked = true,
                kind::TABLE_ID => (table, place) = (b.u8()?, true),
                kind::COOKIE => {
                    b.skip(4)?;
                    (cookie, place) = (b.u64()?, true);
                }
                kind::ACTIONS | kind::INSTRUCTIONS => {
                    if std::mem::take(&mut place) {
                        c.actions.push(Action::UnrollXlate { table, cookie });
                    }
                    b.skip(4)?;
                    let list = match p.kind {
                        kind::ACTIONS => decode_actions(p.body.take_rest(), v)?,
                        _ => decode_instructions(p.body.take_rest(), Version::V13)?,
                    };
                    c.actions.extend(list.0);
                }
                kind::ACTION_SET => {
                    b.skip(4)?;
                    c.action_set = decode_actions(b.take_rest(), v)?.0;
                }
                kind::ODP_PORT => c.odp_port = Some(b.u32()?),
                _ => return Err(p.unknown()),
            }
            p.end()?;
        }
        Ok(c)
    }
}

#[derive(PartialEq, Eq)]
enum Class {
    Place,
    Instruction,
    Action,
}

fn class(a: &Action) -> Class {
    match a {
        Action::UnrollXlate { .. } => Class::Place,
        a if a.is_instruction() => Class::Instruction,
        _ => Class::Action,
    }
}

/// A property that holds a list: its header is padded to eight bytes.
fn put_list(out: &mut Vec<u8>, kind: u16, list: &[&Action], encode: impl FnOnce(&mut Vec<u8>, &[Action])) {
    let list: Vec<Action> = list.iter().map(|a| (*a).clone()).collect();
    put_prop(out, kind, |o| {
        o.zero(4);
        encode(o, &list);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Lookups, parse_actions};

    #[test]
    fn everything_comes_back() {
        let list = |text: &str| parse_actions(text, Lookups::default()).unwrap().0;
        let mut actions = list("pop:NXM_NX_REG4[0..3]");
        actions.push(Action::UnrollXlate { table: 9, cookie: 0x99 });
        actions.extend(list("dec_ttl(5),resubmit(,3),write_actions(output:3),goto_table:7"));
        actions.extend(list("resubmit(,3),write_metadata:5"));
        let c = Continuation {
            bridge: [7; 16],
            stack: vec![vec![0, 0, 0, 5], vec![9]],
            mirrors: 3,
            conntracked: true,
            actions,
            action_set: list("set_field:00:00:00:00:00:09->eth_src,output:2"),
            odp_port: Some(4),
        };
        let mut bytes = Vec::new();
        c.encode(&mut bytes, Version::V13);
        assert_eq!(Continuation::decode(&mut Reader::body(&bytes), Version::V13), Ok(c));
        for n in 0..bytes.len() {
            // Cut anywhere it is refused or says less, and nothing breaks.
            let _ = Continuation::decode(&mut Reader::body(&bytes[..n]), Version::V13);
        }
    }
}
