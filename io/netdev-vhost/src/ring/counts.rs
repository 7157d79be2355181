//! What a ring counts, and why it stops.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// What a guest did to its ring that no driver may do. The ring stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fault {
    /// More buffers made available than the ring has places for.
    IndexJump = 1,
    /// A descriptor number that is not below the ring's size.
    NoDescriptor,
    /// A chain that is longer than the ring, or comes back to itself.
    ChainTooLong,
    /// A table of descriptors inside another one, or a chain that goes on behind a table.
    NestedTable,
    /// A table of descriptors whose length is not that of whole descriptors, or that is empty.
    TableLength,
    /// Tables of descriptors were not negotiated.
    NoTables,
    /// Memory that the guest does not have, or that ends before the descriptor does.
    BadAddress,
    /// A descriptor of no bytes.
    NoBytes,
    /// A buffer to be written where one to be read is due, or the reverse.
    Direction,
    /// A frame longer than any.
    FrameTooLong,
    /// The parts of the ring are not aligned, or its size is none.
    Shape,
    /// What is to be written to interrupt the guest could block its writer.
    CallFile,
}

impl Fault {
    pub const ALL: [Fault; 12] = [
        Fault::IndexJump,
        Fault::NoDescriptor,
        Fault::ChainTooLong,
        Fault::NestedTable,
        Fault::TableLength,
        Fault::NoTables,
        Fault::BadAddress,
        Fault::NoBytes,
        Fault::Direction,
        Fault::FrameTooLong,
        Fault::Shape,
        Fault::CallFile,
    ];

    /// As a port's status says it.
    pub fn text(self) -> &'static str {
        match self {
            Fault::IndexJump => "available index out of range",
            Fault::NoDescriptor => "descriptor number out of range",
            Fault::ChainTooLong => "descriptor chain too long",
            Fault::NestedTable => "nested indirect descriptors",
            Fault::TableLength => "bad indirect table length",
            Fault::NoTables => "indirect descriptors not negotiated",
            Fault::BadAddress => "buffer outside of guest memory",
            Fault::NoBytes => "empty descriptor",
            Fault::Direction => "buffer with wrong direction",
            Fault::FrameTooLong => "frame too long",
            Fault::Shape => "bad ring layout",
            Fault::CallFile => "call descriptor is not an event",
        }
    }

    fn from_u8(n: u8) -> Option<Fault> {
        Fault::ALL.into_iter().find(|f| *f as u8 == n)
    }
}

/// Counters of one ring, written by the thread that has it, read by any.
#[derive(Default, Debug)]
pub struct Counts {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
    /// From the guest: chains without a whole header and an Ethernet header behind it.
    pub short: AtomicU64,
    /// From the guest: offload headers that lie or ask for what was not negotiated.
    pub bad_header: AtomicU64,
    /// To the guest: no buffers were there.
    pub ring_full: AtomicU64,
    /// To the guest: longer than any buffer it offers.
    pub too_long: AtomicU64,
    /// To the guest: metadata that promises what the bytes do not have.
    pub bad_offload: AtomicU64,
    /// To the guest: the ring has stopped.
    pub stopped: AtomicU64,
    /// Times that the guest was interrupted.
    pub calls: AtomicU64,
    fault: AtomicU8,
}

impl Counts {
    /// Adds to a counter that has this one writer.
    #[inline]
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(super) fn stop(&self, fault: Fault) {
        self.fault.store(fault as u8, Relaxed);
    }

    /// Why the ring has stopped, if it has.
    pub fn fault(&self) -> Option<Fault> {
        Fault::from_u8(self.fault.load(Relaxed))
    }
}
