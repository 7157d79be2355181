//! `multipath` and `bundle`: one of several links or ports, by a hash of the packet's headers.

use fv_core::OfPort;
use fv_flow::hash::hrw_weight;
use fv_flow::{FlowMask, Subfield};
use fv_openflow::action::{Bundle, BundleAlgorithm, Multipath};

use crate::ctx::Ctx;

impl Ctx<'_> {
    pub fn multipath(&mut self, m: &Multipath) {
        let hash = m.fields.flow().hash(&self.flow.dp, m.basis.into());
        m.fields.flow().unwildcard(&self.flow, &mut self.mask);
        let link = m.algorithm.flow().link(hash, u32::from(m.max_link) + 1, m.arg);
        self.load_subfield(&m.dst, link.into());
    }

    pub fn bundle(&mut self, b: &Bundle) {
        let port = self.bundle_member(b);
        match &b.dst {
            Some(dst) => self.load_subfield(dst, u128::from(port.to_u16().unwrap_or(u16::MAX))),
            None => self.output_action(port, 0),
        }
    }

    /// The member that takes the packet; `NONE` if none is alive.
    fn bundle_member(&mut self, b: &Bundle) -> OfPort {
        let mut alive = b.members.iter().enumerate().filter(|(_, p)| self.is_alive(**p));
        let chosen = match b.algorithm {
            BundleAlgorithm::ActiveBackup => alive.next(),
            BundleAlgorithm::Hrw => {
                let hash = b.fields.flow().hash(&self.flow.dp, b.basis.into());
                // The first of equal weights, as the reference: `max_by_key` alone would take the last.
                alive.rev().max_by_key(|(i, _)| hrw_weight(*i as u32, hash))
            }
        };
        let port = chosen.map_or(OfPort::NONE, |(_, p)| *p);
        if b.algorithm == BundleAlgorithm::Hrw {
            b.fields.flow().unwildcard(&self.flow, &mut self.mask);
        }
        port
    }

    /// Whether a bundle may choose the port. What is no port of its own is always there.
    fn is_alive(&self, p: OfPort) -> bool {
        match p {
            OfPort::IN_PORT | OfPort::TABLE | OfPort::NORMAL | OfPort::FLOOD | OfPort::ALL | OfPort::NONE => true,
            p => self.br.ports.get(&p).is_some_and(|p| p.is_live()),
        }
    }

    /// Writes what was chosen, and tells it.
    pub fn load_subfield(&mut self, dst: &Subfield, v: u128) {
        let mask: &mut FlowMask = &mut self.mask;
        dst.unwildcard(mask);
        dst.write(&mut self.flow, v);
        self.note_subfield(dst);
    }
}
