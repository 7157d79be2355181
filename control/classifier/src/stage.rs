//! Which bits of a flow key belong to which stage of a lookup, and the hash that is fed stage by
//! stage.

use std::sync::LazyLock;

use fv_flow::key::{FLOW_WORDS, FlowKey};

/// Metadata, L2, L3, L4: packets that differ only in later stages share a megaflow if the earlier
/// ones decide.
pub(crate) const N_STAGES: usize = 4;

/// Bits of each stage. Every field is in exactly one.
pub(crate) static STAGES: LazyLock<[[u64; FLOW_WORDS]; N_STAGES]> = LazyLock::new(|| {
    let mut ones = FlowKey::default();
    ones.words_mut().fill(u64::MAX);
    let (mut l2, mut l3, mut l4) = (FlowKey::default(), FlowKey::default(), FlowKey::default());

    let b = &mut l2.dp.base;
    (b.vlans, b.dl_dst, b.dl_src, b.dl_type) = (ones.base.vlans, ones.base.dl_dst, ones.base.dl_src, ones.base.dl_type);
    l2.dp.misc.mpls_lse = ones.misc.mpls_lse;

    let b = &mut l3.dp.base;
    (b.nw_src, b.nw_dst) = (ones.base.nw_src, ones.base.nw_dst);
    (b.nw_tos, b.nw_ttl, b.nw_proto, b.nw_frag) = (u8::MAX, u8::MAX, u8::MAX, u8::MAX);
    let v = &mut l3.dp.v6;
    (v.ipv6_src, v.ipv6_dst, v.ipv6_label) = (ones.v6.ipv6_src, ones.v6.ipv6_dst, ones.v6.ipv6_label);
    let c = &mut l3.dp.ct;
    (c.nw_src, c.nw_dst, c.ipv6_src, c.ipv6_dst) = (ones.ct.nw_src, ones.ct.nw_dst, ones.ct.ipv6_src, ones.ct.ipv6_dst);

    let b = &mut l4.dp.base;
    (b.tp_src, b.tp_dst, b.tcp_flags) = (ones.base.tp_src, ones.base.tp_dst, ones.base.tcp_flags);
    let v = &mut l4.dp.v6;
    (v.nd_target, v.arp_sha, v.arp_tha) = (ones.v6.nd_target, ones.v6.arp_sha, ones.v6.arp_tha);
    (l4.dp.ct.tp_src, l4.dp.ct.tp_dst) = (ones.ct.tp_src, ones.ct.tp_dst);
    let m = &mut l4.dp.misc;
    (m.igmp_group_ip4, m.nd_reserved, m.nd_options_type) = (ones.misc.igmp_group_ip4, ones.misc.nd_reserved, u8::MAX);
    (m.nsh_flags, m.nsh_ttl, m.nsh_mdtype, m.nsh_np) = (u8::MAX, u8::MAX, u8::MAX, u8::MAX);
    (m.nsh_path_hdr, m.nsh_context) = (ones.misc.nsh_path_hdr, ones.misc.nsh_context);

    let mut stages = [[u64::MAX; FLOW_WORDS], *l2.words(), *l3.words(), *l4.words()];
    let [meta, l2, l3, l4] = &mut stages;
    for (m, rest) in meta.iter_mut().zip(l2.iter().zip(l3.iter().zip(l4.iter()))) {
        *m = !(rest.0 | rest.1.0 | rest.1.1);
    }
    stages
});

pub(crate) const HASH_SEED: u64 = 0x243f_6a88_85a3_08d3;

/// One step of the hash over masked words.
pub(crate) fn hash_word(h: u64, w: u64) -> u64 {
    let x = u128::from(h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (x >> 64) as u64 ^ (x as u64).rotate_left(23) ^ 0x1319_8a2e_0370_7344
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_in_one_stage() {
        for i in 0..FLOW_WORDS {
            let or = STAGES.iter().fold(0, |a, s| a | s[i]);
            let n: u32 = STAGES.iter().map(|s| s[i].count_ones()).sum();
            assert_eq!((or, n), (u64::MAX, 64), "word {i}");
        }
    }
}
