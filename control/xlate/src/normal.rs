//! NORMAL: a learning switch with VLANs.

use fv_core::OfPort;
use fv_flow::key::{VLAN_CFI, Vlan};
use fv_ofproto::view::{BundleView, PriorityTags, VlanMode};

use crate::ctx::{Credit, Ctx, Effect};
use crate::trace::Kind;

const VID: u16 = 0x0fff;
const PCP: u16 = 0xe000;
/// Addresses that a bridge keeps to itself (IEEE 802.1D table 7-10 and 802.1Q).
const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];

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
        Tags(v.map(|v| Tag { tpid: v.tpid.get(), vid: v.tci.get() & VID, pcp: v.tci.get() & PCP }))
    }
    fn pop(self) -> Tags {
        Tags([self.0[1], Tag::default()])
    }
    fn push(self, vid: u16) -> Tags {
        Tags([Tag { tpid: 0, vid, pcp: 0 }, self.0[0]])
    }
}

impl Ctx<'_> {
    pub fn normal(&mut self) {
        self.see_tag(0, VID | VLAN_CFI);
        self.mask.0.dp.base.dl_src = [0xff; 6];
        self.mask.0.dp.base.dl_dst = [0xff; 6];

        let in_port = self.in_port();
        let Some((in_bundle, in_idx)) = self.input_bundle(in_port) else {
            self.note(Kind::Warn, |_| "no input bundle, dropping".into());
            return;
        };
        let (flow_dst, flow_src) = (self.flow.base.dl_dst, self.flow.base.dl_src);
        if self.flow.base.dl_type == 0x8100 && self.flow.base.vlans[0].tci.get() & VLAN_CFI == 0 {
            self.note(Kind::Warn, |_| "dropping packet with partial VLAN tag".into());
            return;
        }
        let tags = Tags::of(&self.flow.base.vlans);
        if !self.input_tags_ok(&tags, &in_bundle) {
            self.note(Kind::Warn, |_| "disallowed VLAN VID for this input port, dropping".into());
            return;
        }
        let Some(inside) = inside_tags(&in_bundle, tags) else {
            return;
        };
        let vlan = inside.0[0].vid;
        if flow_dst[..5] == RESERVED && flow_dst[5] & 0xf0 == 0 && !self.br.forward_bpdu {
            self.note(Kind::Detail, |_| "packet has reserved destination MAC, dropping".into());
            return;
        }
        self.learn(in_idx as u64, &in_bundle, vlan, flow_src);

        if flow_dst[0] & 1 != 0 {
            self.flood_vlan(in_idx, &in_bundle, &inside, "no learned MAC for destination, flooding", flow_dst);
            return;
        }
        match self.br.mac_table.lookup(vlan, flow_dst).map(|e| e.port) {
            Some(to) if to == in_idx as u64 => {
                self.note(Kind::Detail, |_| "learned port is input port, dropping".into());
            }
            Some(to) => {
                self.note(Kind::Detail, |_| "forwarding to learned port".into());
                match self.br.bundles.get(to as usize).cloned() {
                    Some(b) if b.protected && in_bundle.protected => {
                        self.note(Kind::Warn, |_| "dropping between protected ports".into());
                    }
                    Some(b) => self.output_bundle(&b, &inside),
                    None => self.note(Kind::Warn, |_| "learned port is unknown, dropping".into()),
                }
            }
            None => self.flood_vlan(in_idx, &in_bundle, &inside, "no learned MAC for destination, flooding", flow_dst),
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
                self.note(Kind::Error, |_| format!("received packet on unknown port {in_port}"));
                None
            }
        }
    }

    /// Whether a packet with these tags may come in through the bundle.
    fn input_tags_ok(&mut self, tags: &Tags, b: &BundleView) -> bool {
        let vid = tags.0[0].vid;
        match b.vlan_mode {
            VlanMode::Access => {
                if vid != 0 {
                    self.note(Kind::Error, |_| {
                        format!(
                            "dropping VLAN {vid} tagged packet received on port {} configured as VLAN {} access port",
                            b.name, b.tag
                        )
                    });
                    return false;
                }
                true
            }
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid == 0 => true,
            VlanMode::NativeTagged | VlanMode::NativeUntagged | VlanMode::Trunk => {
                if !b.trunks.as_ref().is_none_or(|t| t.contains(vid)) {
                    self.note(Kind::Error, |_| {
                        format!(
                            "dropping VLAN {vid} packet received on port {} not configured for trunking VLAN {vid}",
                            b.name
                        )
                    });
                    return false;
                }
                true
            }
            VlanMode::Dot1qTunnel => {
                self.see_tag(0, VID | VLAN_CFI);
                if !b.cvlans.as_ref().is_none_or(|t| t.contains(vid)) {
                    self.note(Kind::Error, |_| {
                        format!(
                            "dropping VLAN {vid} packet received on dot1q-tunnel port {} that excludes this VLAN",
                            b.name
                        )
                    });
                    return false;
                }
                true
            }
        }
    }

    fn learn(&mut self, bundle: u64, b: &BundleView, vlan: u16, mac: [u8; 6]) {
        if mac[0] & 1 != 0 || bundle == u64::MAX || self.br.flood_vlans.contains(vlan) {
            return;
        }
        let e = Effect::MacLearn {
            bridge: self.br.id,
            table: self.br.mac_table.clone(),
            vlan,
            mac,
            bundle,
            how: fv_l2::Learn { gratuitous_arp: self.is_gratuitous_arp(), from_bond: b.is_bond() },
        };
        self.credits.push(Credit::MacRefresh(e.clone()));
        self.effects.push(e);
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

    fn flood_vlan(&mut self, in_idx: usize, from: &BundleView, tags: &Tags, why: &str, dst: [u8; 6]) {
        let _ = dst;
        self.note(Kind::Detail, |_| why.into());
        let vlan = tags.0[0].vid;
        let cvlan = tags.0[1].vid;
        let br = self.br.clone();
        for (i, b) in br.bundles.iter().enumerate() {
            let wanted = i != in_idx
                && b.floodable
                && includes(b, vlan, cvlan)
                && !(b.protected && from.protected)
                && !b.members.is_empty();
            if wanted {
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
        let tags = outside_tags(b, *inside);
        let old = self.flow.base.vlans;
        self.flow.dp.base.vlans = self.put_tags(b, &tags, &old);
        self.output(port);
        self.flow.dp.base.vlans = old;
    }

    /// The tags as header fields. A VLAN of 0 is no tag, unless the port wants priorities tagged.
    fn put_tags(&mut self, b: &BundleView, tags: &Tags, old: &[Vlan; 2]) -> [Vlan; 2] {
        let mut out = [Vlan::default(); 2];
        let mut n = 0;
        let outer_tpid = old[0].tpid.get();
        for (i, t) in tags.0.iter().enumerate() {
            let present = t.vid != 0
                || (i == 0
                    && b.priority_tags != PriorityTags::Never
                    && (t.pcp != 0 || b.priority_tags == PriorityTags::Always));
            if !present {
                continue;
            }
            let tpid = match t.tpid {
                0 if b.vlan_mode == VlanMode::Trunk && i == 0 && tags.0[1].vid != 0 => 0x88a8,
                0 if outer_tpid != 0 => outer_tpid,
                0 => 0x8100,
                t => t,
            };
            out[n] = Vlan { tpid: tpid.into(), tci: (t.vid | t.pcp | VLAN_CFI).into() };
            n += 1;
        }
        out
    }
}

/// Whether a packet inside the bridge may leave through the bundle.
fn includes(b: &BundleView, vlan: u16, cvlan: u16) -> bool {
    let customer = b.vlan_mode != VlanMode::Dot1qTunnel || b.cvlans.as_ref().is_none_or(|c| c.contains(cvlan));
    b.includes_vlan(vlan) && customer
}

/// The packet's tags as they are inside the bridge; None where the mode has no meaning for it.
fn inside_tags(b: &BundleView, tags: Tags) -> Option<Tags> {
    Some(match b.vlan_mode {
        VlanMode::Access => {
            let mut t = tags.pop().push(b.tag);
            t.0[0].pcp = tags.0[0].pcp;
            t
        }
        VlanMode::Trunk => tags,
        VlanMode::NativeTagged | VlanMode::NativeUntagged => {
            if tags.0[0].vid != 0 {
                tags
            } else {
                let mut t = tags.pop().push(b.tag);
                t.0[0].pcp = tags.0[0].pcp;
                t
            }
        }
        VlanMode::Dot1qTunnel => {
            let mut t = tags.push(b.tag);
            t.0[0].tpid = b.qinq_ethtype;
            t
        }
    })
}

/// The tags with which a packet that is inside the bridge leaves through the bundle.
fn outside_tags(b: &BundleView, inside: Tags) -> Tags {
    match b.vlan_mode {
        VlanMode::Access => {
            let mut t = inside.pop();
            if t.0[0].vid == 0 {
                t.0[0].pcp = inside.0[0].pcp;
            }
            t
        }
        VlanMode::Trunk | VlanMode::NativeTagged => inside,
        VlanMode::NativeUntagged => {
            if inside.0[0].vid == b.tag {
                let mut t = inside.pop();
                if t.0[0].vid == 0 {
                    t.0[0].pcp = inside.0[0].pcp;
                }
                t
            } else {
                inside
            }
        }
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
            assert_eq!(inside_tags(&b, outside).unwrap().0.map(|t| t.vid), inside.0.map(|t| t.vid), "{mode:?} in");
            assert_eq!(outside_tags(&b, inside).0.map(|t| t.vid), outside.0.map(|t| t.vid), "{mode:?} out");
        }
        assert_eq!(outside_tags(&bundle(VlanMode::NativeTagged, 5), t(5, 0)), t(5, 0));
    }
}
