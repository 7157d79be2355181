//! Copies between guest memory and packet buffers, in blocks as wide as the processor's registers.
//!
//! The functions are generic over the block and are inlined into bursts that are compiled once for each width
//! ([`Width`]). The compiler reads each byte once, and nothing is decided by bytes of the guest before they are in
//! our memory, so it does not matter that the guest may write them meanwhile.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// Copies longer than this go to the library's function, which has ways of its own for them.
const LONG: usize = 4096;

/// Registers that copies use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    Bytes16,
    Bytes32,
    Bytes64,
}

impl Width {
    pub const ALL: [Width; 3] = [Width::Bytes16, Width::Bytes32, Width::Bytes64];

    /// The widest that this processor has; asked once.
    pub fn best() -> Width {
        static BEST: OnceLock<Width> = OnceLock::new();
        *BEST.get_or_init(|| Width::ALL.into_iter().rev().find(|w| w.available()).unwrap_or(Width::Bytes16))
    }

    pub fn available(self) -> bool {
        match self {
            Width::Bytes16 => true,
            #[cfg(target_arch = "x86_64")]
            Width::Bytes32 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Width::Bytes64 => {
                Width::Bytes32.available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

/// Calls `burst::<W>(args)` compiled for a width: `at_width!(width, fn burst<L: Layout>(ring: &mut L, ...))`.
macro_rules! at_width {
    ($width:expr, fn $burst:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        mod compiled {
            use super::*;

            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
            pub fn w32<L: Layout>($($arg: $ty),*) $(-> $ret)? { $burst::<L, 32>($($arg),*) }
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
            pub fn w64<L: Layout>($($arg: $ty),*) $(-> $ret)? { $burst::<L, 64>($($arg),*) }
        }
        match $width {
            $crate::ring::copy::Width::Bytes16 => $burst::<L, 16>($($arg),*),
            // SAFETY: a width is only chosen where the processor has it.
            #[cfg(target_arch = "x86_64")]
            $crate::ring::copy::Width::Bytes32 => unsafe { compiled::w32::<L>($($arg),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            $crate::ring::copy::Width::Bytes64 => unsafe { compiled::w64::<L>($($arg),*) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => $burst::<L, 16>($($arg),*),
        }
    }};
}
pub(super) use at_width;

/// # Safety
/// `W` bytes can be read at `from` and written at `to`, and these do not overlap.
#[inline(always)]
unsafe fn block<const W: usize>(to: *mut u8, from: *const u8) {
    // SAFETY: as the caller promises; arrays of bytes need no alignment.
    unsafe { to.cast::<[u8; W]>().write_unaligned(from.cast::<[u8; W]>().read_unaligned()) };
}

/// Copies `len` bytes in whole blocks, so up to `W` - 1 bytes more than that.
///
/// # Safety
/// `len` rounded up to `W` bytes can be read at `from` and written at `to`, and these do not overlap.
#[inline(always)]
pub(super) unsafe fn blocks<const W: usize>(to: *mut u8, from: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        // SAFETY: as the caller promises.
        unsafe { block::<W>(to.add(at), from.add(at)) };
        at += W;
    }
}

/// Copies `len` bytes and touches no others.
///
/// # Safety
/// `len` bytes can be read at `from` and written at `to`, and these do not overlap.
#[inline(always)]
pub(super) unsafe fn exactly<const W: usize>(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: all blocks lie inside of the `len` bytes: each branch is taken for lengths of at least its block.
    unsafe {
        if len >= W {
            if len > LONG {
                std::ptr::copy_nonoverlapping(from, to, len);
                return;
            }
            let mut at = 0;
            while at + W < len {
                block::<W>(to.add(at), from.add(at));
                at += W;
            }
            block::<W>(to.add(len - W), from.add(len - W));
        } else if len >= 32 {
            ends::<32>(to, from, len);
        } else if len >= 16 {
            ends::<16>(to, from, len);
        } else if len >= 8 {
            ends::<8>(to, from, len);
        } else if len >= 4 {
            ends::<4>(to, from, len);
        } else {
            for at in 0..len {
                block::<1>(to.add(at), from.add(at));
            }
        }
    }
}

/// Copies `N..=2 * N` bytes as two blocks, which may overlap.
///
/// # Safety
/// As for [`exactly`], with at least `N` bytes.
#[inline(always)]
unsafe fn ends<const N: usize>(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        block::<N>(to, from);
        block::<N>(to.add(len - N), from.add(len - N));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const W: usize>() {
        let from: Vec<u8> = (0..9000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in (0..300).chain([1000, 4095, 4096, 4097, 8000]) {
            let mut to = vec![0xee; len + W];
            // SAFETY: both have the bytes.
            unsafe { exactly::<W>(to.as_mut_ptr(), from.as_ptr().add(3), len) };
            assert_eq!(to[..len], from[3..3 + len], "{len}");
            assert!(to[len..].iter().all(|b| *b == 0xee), "{len}");
            let mut to = vec![0xee; len + W];
            // SAFETY: both have the bytes.
            unsafe { blocks::<W>(to.as_mut_ptr(), from.as_ptr().add(3), len) };
            assert_eq!(to[..len], from[3..3 + len], "{len}");
        }
    }

    #[test]
    fn every_length() {
        check::<16>();
        check::<32>();
        check::<64>();
        assert!(Width::best().available());
    }
}
