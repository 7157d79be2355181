//! NORMAL: a learning switch with VLANs.

use fv_core::OfPort;
use fv_flow::key::{VLAN_CFI, Vlan};
use fv_ofproto::view::{BundleView, PriorityTags, VlanMode};

use crate::ctx::{Credit, Ctx, Effect};
use crate::trace::Kind;

const VID: u16 = 0x0fff;
const PCP: u16 = 0xe000;
/// Addresses that a bridge keeps to itself, and how many bits of each count: IEEE 802.1D table 7-10
/// and 802.1Q, and what vendors' switches say to each other.
const RESERVED: [([u8; 6], u32); 9] = [
    ([0x01, 0x80, 0xc2, 0x00, 0x00, 0x00], 44),
    ([0x00, 0xe0, 0x2b, 0x00, 0x00, 0x00], 48),
    ([0x00, 0xe0, 0x2b, 0x00, 0x00, 0x04], 48),
    ([0x00, 0xe0, 0x2b, 0x00, 0x00, 0x06], 48),
    ([0x01, 0x00, 0x0c, 0x00, 0x00, 0x00], 48),
    ([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc], 48),
    ([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd], 48),
    ([0x01, 0x00, 0x0c, 0xcd, 0xcd, 0xcd], 48),
    ([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xc0], 45),
];

fn is_reserved(mac: [u8; 6]) -> bool {
    let word = |m: [u8; 6]| m.iter().fold(0u64, |w, b| w << 8 | u64::from(*b));
    RESERVED.iter().any(|(a, bits)| word(mac) >> (48 - bits) == word(*a) >> (48 - bits))
}

/// The tags of a packet inside the bridge: the VLAN it is in, and the tag of the customer below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Tags([Tag; 2]);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Tag {
    tpid: u16,
    vid: u16,
    pcp: u16,
}

impl Tags {
    fn of(v: &[Vlan; 2]) -> Tags {
        let mut out = Tags::default();
        for (t, v) in out.0.iter_mut().zip(v).take_while(|(_, v)| v.tci.get() & VLAN_CFI != 0) {
            *t = Tag { tpid: v.tpid.get(), vid: v.tci.get() & VID, pcp: v.tci.get() & PCP };
        }
        out
    }
    fn pop(self) -> Tags {
        Tags([self.0[1], Tag::default()])
    }
}

impl Ctx<'_> {
    pub fn normal(&mut self) {
        self.is_last = false;
        self.mask.0.dp.base.dl_src = [0xff; 6];
        self.mask.0.dp.base.dl_dst = [0xff; 6];
        self.see_tag(0, VID | VLAN_CFI);

        let in_port = self.in_port();
        let Some((in_bundle, in_idx)) = self.input_bundle(in_port) else {
            self.note(Kind::Warn, |_| "no input bundle, dropping".into());
            return;
        };
        let (flow_dst, flow_src) = (self.flow.base.dl_dst, self.flow.base.dl_src);
        if matches!(self.flow.base.dl_type.get(), 0x8100 | 0x88a8) && self.flow.base.vlans[0].tci.get() & VLAN_CFI == 0
        {
            if self.inp.packet.is_some() {
                let name = &in_bundle.name;
                self.note(Kind::Error, |_| format!("dropping packet with partial VLAN tag received on port {name}"));
            }
            self.note(Kind::Warn, |_| "partial VLAN tag, dropping".into());
            return;
        }
        let tags = Tags::of(&self.flow.base.vlans);
        if in_idx != usize::MAX && !self.input_tags_ok(&tags, &in_bundle) {
            self.note(Kind::Warn, |_| "disallowed VLAN VID for this input port, dropping".into());
            return;
        }
        if tags.0[0].tpid != 0 && tags.0[0].vid == 0 {
            // Its priority may decide whether it stays: now, or when the destination is known.
            self.see_tag(0, PCP);
        }
        let inside = inside_tags(&in_bundle, tags);
        let vlan = inside.0[0].vid;
        if in_idx != usize::MAX && is_reserved(flow_dst) && !self.br.forward_bpdu {
            self.note(Kind::Detail, |_| "packet has reserved destination MAC, dropping".into());
            return;
        }
        self.learn(in_idx as u64, &in_bundle, vlan, flow_src);

        // What a controller sends is forwarded by what was known before.
        let received = !matches!(self.inp.start, crate::Start::Actions(_));
        let known = self.inp.packet.filter(|_| received).and_then(|_| self.learnt(vlan, flow_dst));
        match known.or_else(|| self.br.mac_table.lookup(vlan, flow_dst).map(|e| e.port)) {
            Some(to) if to == in_idx as u64 => {
                self.note(Kind::Detail, |_| "learned port is input port, dropping".into());
            }
            Some(to) => match self.br.bundles.get(to as usize).cloned() {
                Some(b) => {
                    self.note(Kind::Detail, |_| "forwarding to learned port".into());
                    self.output_bundle(&b, &inside);
                }
                None => self.note(Kind::Warn, |_| "learned port is unknown, dropping".into()),
            },
            None => {
                self.note(Kind::Detail, |_| "no learned MAC for destination, flooding".into());
                self.flood_vlan(in_idx, &inside);
            }
        }
    }

    fn input_bundle(&mut self, in_port: OfPort) -> Option<(BundleView, usize)> {
        // A packet that a controller sends with no port of entry counts as coming from nowhere in
        // particular: it may go to any port.
        if in_port == OfPort::CONTROLLER || in_port == OfPort::NONE {
            return Some((BundleView::default(), usize::MAX));
        }
        let idx = self.port(in_port).and_then(|p| p.bundle);
        match idx.and_then(|i| self.br.bundles.get(i).cloned().map(|b| (b, i))) {
            Some(b) => Some(b),
            None => {
                if self.inp.packet.is_some() {
                    self.note(Kind::Error, |_| format!("received packet on unknown port {}", in_port.0));
                }
                None
            }
        }
    }

    /// Whether a packet with these tags may come in through the bundle.
    fn input_tags_ok(&mut self, tags: &Tags, b: &BundleView) -> bool {
        let (vid, name) = (tags.0[0].vid, &b.name);
        let trunked = b.trunks.as_ref().is_none_or(|t| t.contains(vid));
        let native = matches!(b.vlan_mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
        match b.vlan_mode {
            VlanMode::Access if vid != 0 => self.note(Kind::Error, |_| {
                format!(
                    "dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {} access port",
                    b.tag
                )
            }),
            VlanMode::Dot1qTunnel if !b.cvlans.as_ref().is_none_or(|t| t.contains(vid)) => {
                self.note(Kind::Error, |_| {
                    format!("dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN")
                });
            }
            VlanMode::Access | VlanMode::Dot1qTunnel => return true,
            _ if native && vid == 0 || trunked => return true,
            _ => self.note(Kind::Error, |_| {
                format!("dropping VLAN {vid} packet received on port {name} not configured for trunking VLAN {vid}")
            }),
        }
        false
    }

    fn learn(&mut self, bundle: u64, b: &BundleView, vlan: u16, mac: [u8; 6]) {
        if mac[0] & 1 != 0 || bundle == u64::MAX || self.br.flood_vlans.contains(vlan) {
            return;
        }
        let how = fv_l2::Learn { gratuitous_arp: self.is_gratuitous_arp(), from_bond: b.is_bond() };
        let e = Effect::MacLearn { bridge: self.br.id, table: self.br.mac_table.clone(), vlan, mac, bundle, how };
        // Only a packet teaches; a flow that is looked at again does not.
        let news = self.inp.packet.is_some()
            && match self.learnt(vlan, mac) {
                Some(b) => b != bundle,
                None => self.br.mac_table.would_change(self.inp.now, vlan, mac, bundle, how),
            };
        if news {
            let [m0, m1, m2, m3, m4, m5] = mac;
            self.note(Kind::Detail, |_| {
                format!(
                    "learned that {m0:02x}:{m1:02x}:{m2:02x}:{m3:02x}:{m4:02x}:{m5:02x} is on port {} in VLAN {vlan}",
                    b.name
                )
            });
        }
        self.credits.push(Credit::MacRefresh(e.clone()));
        self.effects.push(e);
    }

    /// Where this very packet has just been seen to come from.
    fn learnt(&self, in_vlan: u16, of: [u8; 6]) -> Option<u64> {
        self.effects.iter().rev().find_map(|e| match e {
            Effect::MacLearn { bridge, vlan, mac, bundle, .. } => {
                (*bridge == self.br.id && *vlan == in_vlan && *mac == of).then_some(*bundle)
            }
            Effect::Learn { .. } | Effect::Bfd { .. } | Effect::AskNeighbour(_) | Effect::NeighbourLearn { .. } => None,
        })
    }

    fn is_gratuitous_arp(&mut self) -> bool {
        let b = &self.flow.base;
        if b.dl_type != 0x0806 || b.dl_dst != [0xff; 6] {
            return false;
        }
        let m = &mut self.mask.0.dp.base;
        m.nw_proto = 0xff;
        match self.flow.base.nw_proto {
            2 => true,
            1 => {
                (m.nw_src, m.nw_dst) = (u32::MAX.into(), u32::MAX.into());
                self.flow.base.nw_src == self.flow.base.nw_dst
            }
            _ => false,
        }
    }

    fn flood_vlan(&mut self, in_idx: usize, tags: &Tags) {
        let br = self.br.clone();
        for (i, b) in br.bundles.iter().enumerate() {
            if i != in_idx && b.floodable && includes(b, tags) && !b.members.is_empty() {
                self.output_bundle(b, tags);
            }
            if self.error.is_some() {
                break;
            }
        }
    }

    /// Sends the packet out of a bundle with the tags that the bundle's mode asks for.
    fn output_bundle(&mut self, b: &BundleView, inside: &Tags) {
        let Some(port) = b.members.first().copied() else { return };
        let mut tags = outside_tags(b, *inside);
        let old = self.flow.base.vlans;
        if b.priority_tags != PriorityTags::Never {
            tags.0[0].pcp = old[0].tci.get() & PCP;
        }
        // Whether there is a tag without VLAN is up to its priority.
        let decides =
            |n: usize, t: &Tag| t.vid == 0 && (t.tpid != 0 || (n == 0 && b.priority_tags != PriorityTags::Never));
        if b.priority_tags != PriorityTags::Always && tags.0.iter().enumerate().any(|(n, t)| decides(n, t)) {
            (0..2).for_each(|n| self.see_tag(n, PCP));
        }
        self.flow.dp.base.vlans = put_tags(b, &tags);
        self.output(port);
        self.flow.dp.base.vlans = old;
    }
}

/// The tags as header fields. One without VLAN and priority is no tag, and the last, unless the port
/// keeps those.
fn put_tags(b: &BundleView, tags: &Tags) -> [Vlan; 2] {
    let mut out = [Vlan::default(); 2];
    for (o, t) in out.iter_mut().zip(&tags.0) {
        let kept = t.tpid != 0 && b.priority_tags == PriorityTags::Always;
        if t.vid == 0 && t.pcp == 0 && !kept {
            break;
        }
        let tpid = if t.tpid == 0 { 0x8100 } else { t.tpid };
        *o = Vlan { tpid: tpid.into(), tci: (t.vid | t.pcp | VLAN_CFI).into() };
    }
    out
}

/// Whether a packet inside the bridge may leave through the bundle.
fn includes(b: &BundleView, tags: &Tags) -> bool {
    let (vlan, customer) = (tags.0[0].vid, tags.0[1].vid);
    b.includes_vlan(vlan)
        && match b.vlan_mode {
            VlanMode::Access => customer == 0,
            VlanMode::Dot1qTunnel => b.cvlans.as_ref().is_none_or(|c| c.contains(customer)),
            _ => true,
        }
}

/// The packet's tags as they are inside the bridge.
fn inside_tags(b: &BundleView, tags: Tags) -> Tags {
    let outer = tags.0[0];
    let native = Tag { tpid: if outer.tpid == 0 { 0x8100 } else { outer.tpid }, vid: b.tag, pcp: outer.pcp };
    match b.vlan_mode {
        VlanMode::Access => Tags([native, Tag::default()]),
        VlanMode::Trunk => tags,
        VlanMode::NativeTagged | VlanMode::NativeUntagged if outer.vid != 0 => tags,
        VlanMode::NativeTagged | VlanMode::NativeUntagged => Tags([native, tags.0[1]]),
        VlanMode::Dot1qTunnel => Tags([Tag { tpid: b.qinq_ethtype, vid: b.tag, pcp: 0 }, outer]),
    }
}

/// The tags with which a packet that is inside the bridge leaves through the bundle.
fn outside_tags(b: &BundleView, inside: Tags) -> Tags {
    match b.vlan_mode {
        VlanMode::Access => Tags::default(),
        VlanMode::Trunk | VlanMode::NativeTagged => inside,
        VlanMode::NativeUntagged if inside.0[0].vid == b.tag => inside.pop(),
        VlanMode::NativeUntagged => inside,
        VlanMode::Dot1qTunnel => inside.pop(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(mode: VlanMode, tag: u16) -> BundleView {
        BundleView { vlan_mode: mode, tag, ..BundleView::default() }
    }

    #[test]
    fn modes_translate_tags_both_ways() {
        let t = |a: u16, b: u16| Tags([Tag { vid: a, ..Tag::default() }, Tag { vid: b, ..Tag::default() }]);
        for (mode, tag, outside, inside) in [
            (VlanMode::Access, 5, t(0, 0), t(5, 0)),
            (VlanMode::Trunk, 0, t(7, 0), t(7, 0)),
            (VlanMode::Trunk, 0, t(0, 0), t(0, 0)),
            (VlanMode::NativeUntagged, 5, t(0, 0), t(5, 0)),
            (VlanMode::NativeUntagged, 5, t(6, 0), t(6, 0)),
            (VlanMode::Dot1qTunnel, 9, t(4, 0), t(9, 4)),
        ] {
            let b = bundle(mode, tag);
            assert_eq!(inside_tags(&b, outside).0.map(|t| t.vid), inside.0.map(|t| t.vid), "{mode:?} in");
            assert_eq!(outside_tags(&b, inside).0.map(|t| t.vid), outside.0.map(|t| t.vid), "{mode:?} out");
            assert!(is_reserved([1, 0x80, 0xc2, 0, 0, 0xe]) && !is_reserved([1, 0x80, 0xc2, 0, 0, 0x21]));
        }
        assert_eq!(outside_tags(&bundle(VlanMode::NativeTagged, 5), t(5, 0)), t(5, 0));
    }
}
