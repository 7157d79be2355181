//! `hash`: a flow's hash for later selection among buckets or members.

use fv_dpif::DropReason;
use fv_dpif::action::HashAlg;
use fv_flow::DpKey;
use fv_packet::Packet;

use crate::parse;

/// Never zero, so that a packet shows that it was hashed.
pub fn hash(packet: &mut Packet, algorithm: HashAlg, vlan_limit: u8) -> Result<(), DropReason> {
    let key = parse::extract(packet, vlan_limit);
    let h = match algorithm {
        HashAlg::L4 { basis } => l4(&key, basis),
        HashAlg::SymL4 { basis } => symmetric(&key, basis),
    };
    packet.meta_mut().dp_hash = h.max(1);
    Ok(())
}

/// Of the 5-tuple.
fn l4(key: &DpKey, basis: u32) -> u32 {
    let (src, dst) = ends(key);
    mix(mix(mix(u64::from(basis), src), dst), protocol(key)) as u32
}

/// The same for both directions of a connection.
fn symmetric(key: &DpKey, basis: u32) -> u32 {
    let (src, dst) = ends(key);
    let (a, b) = (mix(u64::from(basis), src), mix(u64::from(basis), dst));
    mix(a.wrapping_add(b) ^ a.min(b).rotate_left(7), protocol(key)) as u32
}

fn protocol(key: &DpKey) -> u64 {
    u64::from(key.base.nw_proto) | u64::from(key.base.dl_type.get()) << 8
}

/// Address and port of both ends.
fn ends(key: &DpKey) -> (u64, u64) {
    let v6 = |a: &[u8; 16]| {
        let n = u128::from_be_bytes(*a);
        mix(n as u64, (n >> 64) as u64)
    };
    let (src, dst) = match key.base.dl_type.get() {
        0x86dd => (v6(&key.v6.ipv6_src), v6(&key.v6.ipv6_dst)),
        _ => (u64::from(key.base.nw_src.get()), u64::from(key.base.nw_dst.get())),
    };
    // ICMP's type and code are no ports.
    let has_ports = matches!(key.base.nw_proto, 6 | 17 | 132);
    let port = |p: u16| if has_ports { u64::from(p) << 40 } else { 0 };
    (mix(src, port(key.base.tp_src.get())), mix(dst, port(key.base.tp_dst.get())))
}

fn mix(a: u64, b: u64) -> u64 {
    let p = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (p as u64) ^ ((p >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symmetric_means_both_directions() {
        let mut key = DpKey::default();
        key.base.dl_type = 0x800.into();
        key.base.nw_proto = 6;
        let mut seen = std::collections::HashSet::new();
        for i in 0..1000u32 {
            let (a, b) = (i * 7 + 1, i * 13 + 5);
            (key.base.nw_src, key.base.nw_dst) = (a.into(), b.into());
            (key.base.tp_src, key.base.tp_dst) = ((a as u16).into(), (b as u16).into());
            let there = (symmetric(&key, 3), l4(&key, 3));
            (key.base.nw_src, key.base.nw_dst) = (b.into(), a.into());
            (key.base.tp_src, key.base.tp_dst) = ((b as u16).into(), (a as u16).into());
            assert_eq!(symmetric(&key, 3), there.0);
            assert_ne!(l4(&key, 3), there.1);
            assert_ne!(symmetric(&key, 4), there.0);
            seen.insert(there.0);
        }
        assert!(seen.len() > 990);
    }
}
