//! Fields that can have a prefix trie over the whole classifier.

use fv_flow::{FlowKey, FlowMask};
use parking_lot::RwLock;

use crate::mini::MiniMatch;
use crate::trie::Trie;

/// A field whose rules' prefixes are kept in a trie (`prefixes` of a flow table).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PrefixField {
    NwSrc,
    NwDst,
    Ipv6Src,
    Ipv6Dst,
    TunSrc,
    TunDst,
    TunIpv6Src,
    TunIpv6Dst,
}

/// At most this many tries a table.
pub const MAX_PREFIXES: usize = 4;
/// What a table has when nothing is configured, in the order in which they are asked.
pub const DEFAULT_PREFIXES: [PrefixField; 4] =
    [PrefixField::NwDst, PrefixField::NwSrc, PrefixField::Ipv6Dst, PrefixField::Ipv6Src];

const N_FIELDS: usize = 8;
const ALL: [PrefixField; N_FIELDS] = [
    PrefixField::NwSrc,
    PrefixField::NwDst,
    PrefixField::Ipv6Src,
    PrefixField::Ipv6Dst,
    PrefixField::TunSrc,
    PrefixField::TunDst,
    PrefixField::TunIpv6Src,
    PrefixField::TunIpv6Dst,
];

const ETH_IPV4: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;

impl PrefixField {
    pub fn name(self) -> &'static str {
        match self {
            PrefixField::NwSrc => "nw_src",
            PrefixField::NwDst => "nw_dst",
            PrefixField::Ipv6Src => "ipv6_src",
            PrefixField::Ipv6Dst => "ipv6_dst",
            PrefixField::TunSrc => "tun_src",
            PrefixField::TunDst => "tun_dst",
            PrefixField::TunIpv6Src => "tun_ipv6_src",
            PrefixField::TunIpv6Dst => "tun_ipv6_dst",
        }
    }

    /// By any of its usual names.
    pub fn from_name(s: &str) -> Option<PrefixField> {
        match s {
            "ip_src" => Some(PrefixField::NwSrc),
            "ip_dst" => Some(PrefixField::NwDst),
            _ => ALL.into_iter().find(|f| f.name() == s),
        }
    }

    /// Index of the stage that the field is in.
    pub(crate) fn stage(self) -> usize {
        match self {
            PrefixField::NwSrc | PrefixField::NwDst | PrefixField::Ipv6Src | PrefixField::Ipv6Dst => 2,
            _ => 0,
        }
    }

    /// Where the field is in a key, in bytes.
    const fn offset(self) -> usize {
        use std::mem::offset_of;
        match self {
            PrefixField::NwSrc => offset_of!(FlowKey, dp.base.nw_src),
            PrefixField::NwDst => offset_of!(FlowKey, dp.base.nw_dst),
            PrefixField::Ipv6Src => offset_of!(FlowKey, dp.v6.ipv6_src),
            PrefixField::Ipv6Dst => offset_of!(FlowKey, dp.v6.ipv6_dst),
            PrefixField::TunSrc => offset_of!(FlowKey, dp.tun.src),
            PrefixField::TunDst => offset_of!(FlowKey, dp.tun.dst),
            PrefixField::TunIpv6Src => offset_of!(FlowKey, dp.tun.ipv6_src),
            PrefixField::TunIpv6Dst => offset_of!(FlowKey, dp.tun.ipv6_dst),
        }
    }

    /// The field's bits, left-aligned, of a key whose words `word` gives.
    fn value(self, word: impl Fn(usize) -> u64) -> u128 {
        let at = self.offset();
        // Words are native, fields in network order.
        let first = u128::from(u64::from_be_bytes(word(at / 8).to_ne_bytes()));
        match self.is_v4() {
            true => u128::from((first >> (32 - at % 8 * 8)) as u32) << 96,
            false => first << 64 | u128::from(u64::from_be_bytes(word(at / 8 + 1).to_ne_bytes())),
        }
    }

    fn is_v4(self) -> bool {
        matches!(self, PrefixField::NwSrc | PrefixField::NwDst | PrefixField::TunSrc | PrefixField::TunDst)
    }

    /// Adds the first `n` bits of the field to `wc`.
    fn unwildcard(self, wc: &mut FlowMask, n: u8) {
        let m = prefix_mask(n);
        let v4 = (m >> 96) as u32;
        let or16 = |a: &mut [u8; 16]| *a = (u128::from_be_bytes(*a) | m).to_be_bytes();
        let k = &mut wc.0.dp;
        match self {
            PrefixField::NwSrc => k.base.nw_src.set(k.base.nw_src.get() | v4),
            PrefixField::NwDst => k.base.nw_dst.set(k.base.nw_dst.get() | v4),
            PrefixField::TunSrc => k.tun.src.set(k.tun.src.get() | v4),
            PrefixField::TunDst => k.tun.dst.set(k.tun.dst.get() | v4),
            PrefixField::Ipv6Src => or16(&mut k.v6.ipv6_src),
            PrefixField::Ipv6Dst => or16(&mut k.v6.ipv6_dst),
            PrefixField::TunIpv6Src => or16(&mut k.tun.ipv6_src),
            PrefixField::TunIpv6Dst => or16(&mut k.tun.ipv6_dst),
        }
    }

    /// The EtherType on which the field has this meaning: the same bits hold ARP addresses.
    fn prerequisite(self) -> Option<u16> {
        match self {
            PrefixField::NwSrc | PrefixField::NwDst => Some(ETH_IPV4),
            PrefixField::Ipv6Src | PrefixField::Ipv6Dst => Some(ETH_IPV6),
            _ => None,
        }
    }
}

fn prefix_mask(n: u8) -> u128 {
    if n == 0 { 0 } else { u128::MAX << (128 - n.min(128)) }
}

/// Prefix lengths of a mask, one per field; 0 where the field is not matched or not by a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lengths([u8; N_FIELDS]);

impl Lengths {
    pub(crate) fn of(mask: &FlowMask) -> Lengths {
        Lengths(ALL.map(|f| {
            let m = f.value(|w| mask.0.words()[w]);
            let n = m.leading_ones() as u8;
            if m == prefix_mask(n) { n } else { 0 }
        }))
    }

    pub(crate) fn get(&self, f: PrefixField) -> u8 {
        self.0[f as usize]
    }
}

enum AnyTrie {
    V4(Trie<u32>),
    V6(Trie<u128>),
}

struct FieldTrie {
    field: PrefixField,
    trie: RwLock<AnyTrie>,
}

/// The tries of one configuration. A new configuration is a new value that is complete before it
/// is seen.
pub(crate) struct Tries(Vec<FieldTrie>);

impl Tries {
    pub(crate) fn new(fields: &[PrefixField]) -> Tries {
        let trie = |f: PrefixField| match f.is_v4() {
            true => AnyTrie::V4(Trie::default()),
            false => AnyTrie::V6(Trie::default()),
        };
        Tries(fields.iter().map(|&f| FieldTrie { field: f, trie: RwLock::new(trie(f)) }).collect())
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = PrefixField> + '_ {
        self.0.iter().map(|t| t.field)
    }

    /// What a writer holds, all at once.
    #[cfg(test)]
    pub(crate) fn lock_all(&self) -> impl Drop + '_ {
        struct Held<T>(#[allow(dead_code)] Vec<T>);
        impl<T> Drop for Held<T> {
            fn drop(&mut self) {}
        }
        Held(self.0.iter().map(|t| t.trie.write()).collect())
    }

    pub(crate) fn insert(&self, m: &MiniMatch, lengths: &Lengths) {
        self.change(m, lengths, true);
    }

    pub(crate) fn remove(&self, m: &MiniMatch, lengths: &Lengths) {
        self.change(m, lengths, false);
    }

    fn change(&self, m: &MiniMatch, lengths: &Lengths, add: bool) {
        for t in &self.0 {
            let len = lengths.get(t.field);
            if len == 0 {
                continue;
            }
            let v = t.field.value(|w| m.value(w));
            match &mut *t.trie.write() {
                AnyTrie::V4(x) if add => x.insert((v >> 96) as u32, len),
                AnyTrie::V4(x) => x.remove((v >> 96) as u32, len),
                AnyTrie::V6(x) if add => x.insert(v, len),
                AnyTrie::V6(x) => x.remove(v, len),
            }
        }
    }
}

/// The answers of the tries for one key: each trie is asked at most once a lookup.
pub(crate) struct Asked<'a> {
    tries: &'a Tries,
    key: &'a FlowKey,
    answers: [Option<(u8, u128)>; MAX_PREFIXES],
}

impl<'a> Asked<'a> {
    pub(crate) fn new(tries: &'a Tries, key: &'a FlowKey) -> Asked<'a> {
        Asked { tries, key, answers: [None; MAX_PREFIXES] }
    }

    fn answer(&mut self, i: usize) -> (u8, u128) {
        let t = &self.tries.0[i];
        *self.answers[i].get_or_insert_with(|| {
            if t.field.prerequisite().is_some_and(|e| self.key.base.dl_type.get() != e) {
                return (0, u128::MAX);
            }
            let v = t.field.value(|w| self.key.words()[w]);
            match t.trie.try_read().as_deref() {
                Some(AnyTrie::V4(x)) => x.lookup((v >> 96) as u32),
                Some(AnyTrie::V6(x)) => x.lookup(v),
                // The writer has it: nothing is ruled out.
                None => (0, u128::MAX),
            }
        })
    }

    /// Whether the tries of all fields that these prefixes are of have been asked already.
    pub(crate) fn knows(&self, lengths: &Lengths) -> bool {
        let asked = self.answers.iter().map(Option::is_some);
        self.tries.0.iter().zip(asked).all(|(t, asked)| asked || lengths.get(t.field) == 0)
    }

    /// Whether a trie proves that no rule with these prefix lengths covers the key; if so, the bits
    /// that prove it are added to `wc`. Never costs more bits than the subtable's own mask would.
    pub(crate) fn rules_out(&mut self, lengths: &Lengths, stage: usize, wc: &mut FlowMask) -> bool {
        for i in 0..self.tries.0.len().min(MAX_PREFIXES) {
            let field = self.tries.0[i].field;
            let len = lengths.get(field);
            if len == 0 || field.stage() != stage {
                continue;
            }
            let (bits, covering) = self.answer(i);
            if covering >> (len - 1) & 1 != 0 {
                continue;
            }
            let m = prefix_mask(bits);
            if bits <= len || field.value(|w| wc.0.words()[w]) & m == m {
                field.unwildcard(wc, bits);
                if field.prerequisite().is_some() {
                    wc.0.dp.base.dl_type.set(u16::MAX);
                }
                return true;
            }
        }
        false
    }
}
