//! Ethtool requests (linux/ethtool.h) that a switch's status needs. By name, in the namespace of the
//! [`Rtnl`](crate::Rtnl) that asks.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
/// Link mode masks: the kernel has 4 words each today; it refuses more than 127.
const MAX_MASK_WORDS: usize = 127;
const LINK_SETTINGS_WORDS: usize = 12;

/// What `ETHTOOL_GDRVINFO` tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Driver {
    pub name: String,
    pub version: String,
    pub firmware: String,
    /// PCI address and the like.
    pub bus: String,
}

/// What the link runs at, where the driver tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Speed {
    pub mbps: Option<u32>,
    pub full_duplex: Option<bool>,
}

pub(crate) fn driver(fd: BorrowedFd<'_>, name: &str) -> io::Result<Driver> {
    // cmd, driver[32], version[32], fw_version[32], bus_info[32], erom[32], reserved, 5 words.
    let mut w = [0u32; 49];
    w[0] = ETHTOOL_GDRVINFO;
    sys::ethtool(fd, name, &mut w)?;
    let text = |n: usize| {
        let bytes: Vec<u8> = w[1 + n * 8..9 + n * 8].iter().flat_map(|x| x.to_ne_bytes()).collect();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Ok(Driver { name: text(0), version: text(1), firmware: text(2), bus: text(3) })
}

/// `ETHTOOL_GLINKSETTINGS`, or the older request where the driver lacks it.
pub(crate) fn speed(fd: BorrowedFd<'_>, name: &str) -> io::Result<Speed> {
    let mut w = [0u32; LINK_SETTINGS_WORDS + 3 * MAX_MASK_WORDS];
    w[0] = ETHTOOL_GLINKSETTINGS;
    // The first call tells the mask length as a negative number in byte 15.
    sys::ethtool(fd, name, &mut w)?;
    let words = (w[3].to_ne_bytes()[3] as i8).saturating_neg();
    if !(0..=MAX_MASK_WORDS as i16).contains(&i16::from(words)) {
        return old_speed(fd, name);
    }
    w = [0; LINK_SETTINGS_WORDS + 3 * MAX_MASK_WORDS];
    w[0] = ETHTOOL_GLINKSETTINGS;
    w[3] = u32::from_ne_bytes([0, 0, 0, words as u8]);
    sys::ethtool(fd, name, &mut w)?;
    Ok(settings(w[1], w[2].to_ne_bytes()[0]))
}

fn old_speed(fd: BorrowedFd<'_>, name: &str) -> io::Result<Speed> {
    // cmd, supported, advertising, speed:16, duplex:8, port:8, ..., speed_hi:16, ...
    let mut w = [0u32; 11];
    w[0] = ETHTOOL_GSET;
    sys::ethtool(fd, name, &mut w)?;
    let b = w[3].to_ne_bytes();
    let low = u32::from(u16::from_ne_bytes([b[0], b[1]]));
    let h = w[7].to_ne_bytes();
    let high = u32::from(u16::from_ne_bytes([h[0], h[1]]));
    Ok(settings(high << 16 | low, b[2]))
}

fn settings(mbps: u32, duplex: u8) -> Speed {
    let unknown = mbps == 0 || mbps == u32::MAX || mbps == u32::from(u16::MAX);
    Speed {
        mbps: (!unknown).then_some(mbps),
        full_duplex: match duplex {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}

/// Whether the device itself sums and segments what it sends. A packet socket does not need to know:
/// the kernel does in software what the device cannot.
pub(crate) fn tx_offloads(fd: BorrowedFd<'_>, name: &str) -> io::Result<(bool, bool)> {
    let ask = |cmd| {
        let mut w = [cmd, 0];
        sys::ethtool(fd, name, &mut w).map(|()| w[1] != 0)
    };
    Ok((ask(ETHTOOL_GTXCSUM)?, ask(ETHTOOL_GTSO)?))
}
