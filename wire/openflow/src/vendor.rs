//! Experimenter ids.

/// Nicira's id, which Open vSwitch's extensions carry.
pub const NX: u32 = 0x2320;
/// The Open Networking Foundation's id.
pub const ONF: u32 = 0x4f4e_4600;
