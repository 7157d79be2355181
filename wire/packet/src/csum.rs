//! Checksums: the internet checksum (RFC 1071), its incremental update (RFC 1624), CRC32c.
//!
//! A *sum* is a ones' complement sum of 16-bit big-endian words, kept in 32 bits with carries pending;
//! a *checksum* is the complement of a folded sum, as headers hold it.

mod crc32c;
mod packet;

pub use crc32c::crc32c;
pub(crate) use packet::pseudo;
pub use packet::{CsumError, finish_checksum, finish_ip_checksum, l4_csum_offset, validate, validate_ip};

/// Adds the words of `data` to `sum`. A byte left over counts as the high half of a word, so only the
/// last piece may be odd.
#[inline]
pub fn add(sum: u32, data: &[u8]) -> u32 {
    // Sums of native 32-bit words are sums of 16-bit words once folded, with the byte order undone
    // at the end.
    let (mut acc, rest) = if data.len() >= 64 { add_blocks(data) } else { (0, data) };
    let mut words = rest.chunks_exact(4);
    for w in &mut words {
        acc += u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
    }
    acc += match words.remainder() {
        [a, b, c] => u64::from(u16::from_ne_bytes([*a, *b])) + u64::from(u16::from_ne_bytes([*c, 0])),
        [a, b] => u64::from(u16::from_ne_bytes([*a, *b])),
        [a] => u64::from(u16::from_ne_bytes([*a, 0])),
        _ => 0,
    };
    let folded = fold64(acc);
    fold32(sum) + u32::from(u16::from_be_bytes(folded.to_ne_bytes()))
}

/// Sums whole blocks in independent lanes, which the compiler turns into vector additions.
fn add_blocks(data: &[u8]) -> (u64, &[u8]) {
    let mut lanes = [0u64; 8];
    let mut blocks = data.chunks_exact(32);
    for block in &mut blocks {
        for (lane, w) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        }
    }
    let acc = lanes.iter().fold(0, |a, lane| a + (lane & 0xffff_ffff) + (lane >> 32));
    (acc, blocks.remainder())
}

#[inline]
fn fold64(acc: u64) -> u16 {
    let acc = (acc & 0xffff_ffff) + (acc >> 32);
    let acc = (acc & 0xffff) + (acc >> 16);
    let acc = (acc & 0xffff) + (acc >> 16);
    ((acc & 0xffff) + (acc >> 16)) as u16
}

#[inline]
fn fold32(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

/// Brings a sum down to 16 bits.
#[inline]
pub fn fold(sum: u32) -> u16 {
    fold32(fold32(sum)) as u16
}

/// The checksum that stands for a sum.
#[inline]
pub fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// As [`finish`] for UDP, where 0 would mean "none".
#[inline]
pub fn finish_udp(sum: u32) -> u16 {
    match finish(sum) {
        0 => 0xffff,
        csum => csum,
    }
}

/// The checksum of `data`.
pub fn of(data: &[u8]) -> u16 {
    finish(add(0, data))
}

/// Sum of the IPv4 pseudo header (RFC 793).
pub fn pseudo_v4(src: u32, dst: u32, proto: u8, l4_len: u16) -> u32 {
    let word = |v: u32| (v & 0xffff) + (v >> 16);
    word(src) + word(dst) + u32::from(proto) + u32::from(l4_len)
}

/// Sum of the IPv6 pseudo header (RFC 8200).
pub fn pseudo_v6(src: &[u8; 16], dst: &[u8; 16], proto: u8, l4_len: u32) -> u32 {
    add(add(0, src), dst) + fold32(l4_len) + u32::from(proto)
}

/// The checksum after a 16-bit word that it covers changed.
#[inline]
pub fn update16(csum: u16, old: u16, new: u16) -> u16 {
    finish(u32::from(!csum) + u32::from(!old) + u32::from(new))
}

/// The checksum after a 32-bit value that it covers changed.
#[inline]
pub fn update32(csum: u16, old: u32, new: u32) -> u16 {
    finish(u32::from(!csum) + delta32(old, new))
}

/// The checksum after bytes that it covers, at an even distance from its start, changed.
#[inline]
pub fn update(csum: u16, old: &[u8], new: &[u8]) -> u16 {
    finish(u32::from(!csum) + delta(old, new))
}

/// What a change of bytes adds to a sum. Both have the same length.
#[inline]
pub fn delta(old: &[u8], new: &[u8]) -> u32 {
    add(0, new) + u32::from(!fold(add(0, old)))
}

/// What a change of a 32-bit value adds to a sum.
#[inline]
pub fn delta32(old: u32, new: u32) -> u32 {
    let word = |v: u32| (v & 0xffff) + (v >> 16);
    word(!old) + word(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, a word at a time.
    fn naive(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in data.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn known() {
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(of(&header), 0xb861);
        assert_eq!(of(&[]), 0xffff);
        assert_eq!(of(&[0xff; 70_000]), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[]), 0);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    proptest! {
        #[test]
        fn as_defined(data in proptest::collection::vec(any::<u8>(), 0..600), split in 0usize..300) {
            prop_assert_eq!(of(&data), naive(&data));
            let (a, b) = data.split_at((split * 2).min(data.len() & !1));
            prop_assert_eq!(finish(add(add(0, a), b)), naive(&data));
        }

        #[test]
        fn updates_equal_recomputation(
            mut data in proptest::collection::vec(any::<u8>(), 40..120), at in 0usize..17, new in any::<[u8; 4]>(),
        ) {
            // A header is never all zeros: protocol and length are not.
            data[38] |= 1;
            let before = of(&data);
            let at = at * 2;
            let old: [u8; 4] = data[at..at + 4].try_into().unwrap();
            data[at..at + 4].copy_from_slice(&new);
            let after = naive(&data);
            prop_assert_eq!(update32(before, u32::from_be_bytes(old), u32::from_be_bytes(new)), after);
            prop_assert_eq!(update(before, &old, &new), after);
            let half = update16(before, u16::from_be_bytes([old[0], old[1]]), u16::from_be_bytes([new[0], new[1]]));
            let both = update16(half, u16::from_be_bytes([old[2], old[3]]), u16::from_be_bytes([new[2], new[3]]));
            prop_assert_eq!(both, after);
        }

        #[test]
        fn crc_bit_by_bit(data in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut crc = !0u32;
            for byte in &data {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                }
            }
            prop_assert_eq!(crc32c(&data), !crc);
        }
    }
}
