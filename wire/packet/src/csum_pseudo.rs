//! A complete L4 checksum turned back into one that is due.

use crate::bytes::set16;
use crate::csum::{fold, pseudo};
use crate::hdr::Layout;

/// Writes the folded pseudo header sum into the checksum field `at` bytes into the L4 header.
pub(crate) fn write(frame: &mut [u8], l: &Layout, at: usize) {
    let sum = fold(pseudo(frame, l));
    set16(frame, l.l4_ofs + at, sum);
}
