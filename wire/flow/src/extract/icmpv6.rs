//! ICMPv6 and the options of neighbour discovery (RFC 4861 section 4.6).

use super::{Cursor, MAX_ND_OPTIONS, l3, part};
use crate::key::DpKey;

pub(super) const ND_NS: u8 = 135;
pub(super) const ND_NA: u8 = 136;
const OPT_SOURCE_LLA: u8 = 1;
const OPT_TARGET_LLA: u8 = 2;

pub(super) fn icmpv6(c: &mut Cursor, key: &mut DpKey) -> bool {
    let Some(h) = c.peek::<8>() else { return false };
    let (ty, code) = (h[0], h[1]);
    l3::type_code(c, key);
    if code == 0 && (ty == ND_NS || ty == ND_NA) {
        key.misc.nd_reserved = u32::from_be_bytes(part(h, 4)).into();
        c.skip(8);
        if let Some(target) = c.take::<16>() {
            key.v6.nd_target = *target;
            if !nd_options(c, key) {
                key.v6.nd_target = [0; 16];
                (key.v6.arp_sha, key.v6.arp_tha) = ([0; 6], [0; 6]);
            }
        }
    }
    true
}

/// Link-layer addresses. False if one is given twice: then none of the message is to be believed.
/// An option of a wrong length ends the list, keeping what precedes it.
fn nd_options(c: &mut Cursor, key: &mut DpKey) -> bool {
    for _ in 0..MAX_ND_OPTIONS {
        let Some(o) = c.peek::<8>() else { return true };
        let len = usize::from(o[1]) * 8;
        if len == 0 || len > c.len() {
            return true;
        }
        let slot = match (o[0], len) {
            (OPT_SOURCE_LLA, 8) => Some(&mut key.v6.arp_sha),
            (OPT_TARGET_LLA, 8) => Some(&mut key.v6.arp_tha),
            _ => None,
        };
        if let Some(lla) = slot {
            if *lla != [0; 6] {
                return false;
            }
            *lla = part(o, 2);
            if key.misc.nd_options_type == 0 {
                key.misc.nd_options_type = o[0];
            }
        }
        c.skip(len);
    }
    true
}
