//! Ethernet, VLAN tags, 802.2/SNAP, MPLS.

use super::{Cursor, MAX_LABELS_WALKED, Offsets, be16, part};
use crate::key::{DL_TYPE_NONE, DpKey, N_MPLS, VLAN_CFI, Vlan, eth};

/// Addresses, tags, and the EtherType behind them. None for a frame too short for a header.
pub(super) fn ethernet(c: &mut Cursor, vlan_limit: u8, key: &mut DpKey, _: &mut Offsets) -> Option<u16> {
    if c.len() < 14 {
        return None;
    }
    let h = c.take::<12>()?;
    key.base.dl_dst = part(h, 0);
    key.base.dl_src = part(h, 6);
    for tag in key.base.vlans.iter_mut().take(vlan_limit.into()) {
        let Some(b) = c.peek::<6>() else { break };
        let tpid = be16(&part(b, 0));
        if !is_vlan(tpid) {
            break;
        }
        *tag = Vlan { tpid: tpid.into(), tci: (be16(&part(b, 2)) | VLAN_CFI).into() };
        c.skip(4);
    }
    ethertype(c)
}

pub(super) fn is_vlan(tpid: u16) -> bool {
    matches!(tpid, eth::VLAN_8021Q | eth::VLAN_8021AD)
}

/// The type, or what a SNAP header says, or [`DL_TYPE_NONE`].
fn ethertype(c: &mut Cursor) -> Option<u16> {
    let t = be16(c.take::<2>()?);
    if t >= eth::TYPE_MIN {
        return Some(t);
    }
    match c.peek::<8>() {
        Some([0xaa, 0xaa, 0x03, 0, 0, 0, hi, lo]) => {
            c.skip(8);
            let t = be16(&[*hi, *lo]);
            Some(if t >= eth::TYPE_MIN { t } else { DL_TYPE_NONE })
        }
        _ => Some(DL_TYPE_NONE),
    }
}

/// Keeps the first labels and skips the rest of the stack.
pub(super) fn mpls(c: &mut Cursor, key: &mut DpKey) {
    for n in 0..MAX_LABELS_WALKED {
        let Some(lse) = c.take::<4>() else { return };
        if n < N_MPLS {
            key.misc.mpls_lse[n] = u32::from_be_bytes(*lse).into();
        }
        if lse[2] & 1 != 0 {
            return;
        }
    }
}
