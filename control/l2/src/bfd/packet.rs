//! BFD control packets (RFC 5880, section 4.1) in Ethernet, IPv4 and UDP (RFC 5881).

use super::{Diagnostic, State};

/// UDP destination port of control packets.
pub const UDP_PORT: u16 = 3784;
/// First of the source ports that RFC 5881 section 4 sets aside.
const FIRST_SOURCE_PORT: u16 = 49152;
const VERSION: u8 = 1;
/// Bytes of a control packet without authentication.
pub const LEN: usize = 24;

pub const FLAG_MULTIPOINT: u8 = 1;
pub const FLAG_DEMAND: u8 = 1 << 1;
pub const FLAG_AUTH: u8 = 1 << 2;
pub const FLAG_CONTROL_PLANE: u8 = 1 << 3;
pub const FLAG_FINAL: u8 = 1 << 4;
pub const FLAG_POLL: u8 = 1 << 5;

/// The fields of one control packet; intervals in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    pub diagnostic: Diagnostic,
    pub state: State,
    /// `FLAG_*`
    pub flags: u8,
    pub mult: u8,
    pub my_discriminator: u32,
    pub your_discriminator: u32,
    pub min_tx_us: u32,
    pub min_rx_us: u32,
    pub min_rx_echo_us: u32,
}

/// Why a packet is not taken (RFC 5880, section 6.8.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Bad {
    #[error("too short")]
    Short,
    #[error("incorrect version {0}")]
    Version(u8),
    #[error("length field {0} is wrong")]
    Length(u8),
    #[error("zero detection multiplier")]
    NoMultiplier,
    #[error("multipoint bit is set")]
    Multipoint,
    #[error("authentication is not supported")]
    Auth,
    #[error("discriminator of the sender is zero")]
    NoDiscriminator,
    #[error("your_disc {got:#x} is not {ours:#x}")]
    NotOurs { got: u32, ours: u32 },
    #[error("no your_disc in state {0}")]
    NoYours(State),
    #[error("TTL is {0}, not 255")]
    Ttl(u8),
    #[error("not an IPv4 UDP packet")]
    NotUdp,
}

fn word(b: &[u8; LEN], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

impl Control {
    /// Reads a UDP payload. What depends on the session is left to it.
    pub fn parse(payload: &[u8]) -> Result<Control, Bad> {
        let b: &[u8; LEN] = payload.first_chunk().ok_or(Bad::Short)?;
        let (version, flags, length) = (b[0] >> 5, b[1] & 0x3f, b[3]);
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        if usize::from(length) < LEN || usize::from(length) > payload.len() {
            return Err(Bad::Length(length));
        }
        if flags & FLAG_AUTH != 0 {
            return Err(Bad::Auth);
        }
        if b[2] == 0 {
            return Err(Bad::NoMultiplier);
        }
        if flags & FLAG_MULTIPOINT != 0 {
            return Err(Bad::Multipoint);
        }
        let c = Control {
            diagnostic: Diagnostic::from_wire(b[0] & 0x1f),
            state: State::from_wire(b[1] >> 6),
            flags,
            mult: b[2],
            my_discriminator: word(b, 4),
            your_discriminator: word(b, 8),
            min_tx_us: word(b, 12),
            min_rx_us: word(b, 16),
            min_rx_echo_us: word(b, 20),
        };
        if c.my_discriminator == 0 {
            return Err(Bad::NoDiscriminator);
        }
        Ok(c)
    }

    pub fn to_bytes(self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[0] = VERSION << 5 | self.diagnostic.to_wire();
        b[1] = self.state.to_wire() << 6 | self.flags & 0x3f;
        b[2] = self.mult;
        b[3] = LEN as u8;
        let words =
            [self.my_discriminator, self.your_discriminator, self.min_tx_us, self.min_rx_us, self.min_rx_echo_us];
        for (out, w) in b[4..].chunks_exact_mut(4).zip(words) {
            out.copy_from_slice(&w.to_be_bytes());
        }
        b
    }
}

/// A text of flags, as `bfd/show` prints it.
pub(super) fn flags_text(flags: u8) -> String {
    let names = [
        (FLAG_MULTIPOINT, "multipoint"),
        (FLAG_DEMAND, "demand"),
        (FLAG_AUTH, "auth"),
        (FLAG_CONTROL_PLANE, "ctl"),
        (FLAG_FINAL, "final"),
        (FLAG_POLL, "poll"),
    ];
    let set: Vec<&str> = names.iter().filter(|(f, _)| flags & f != 0).map(|(_, n)| *n).collect();
    if set.is_empty() { "none".into() } else { set.join(" ") }
}

/// A frame around a control packet: TTL 255 (RFC 5881, section 5), network control class, no UDP checksum.
pub(super) fn frame(c: Control, eth: ([u8; 6], [u8; 6]), ip: (u32, u32), source_port: u16) -> Vec<u8> {
    use fv_packet::compose::Compose;
    use fv_packet::hdr::ipv4;
    let fields = ipv4::Fields { src: ip.0, dst: ip.1, proto: 17, tos: 0xc0, ttl: 255, ..ipv4::Fields::default() };
    let source_port = FIRST_SOURCE_PORT + source_port % (u16::MAX - FIRST_SOURCE_PORT);
    let mut frame =
        Compose::payload(&c.to_bytes()).udp(source_port, UDP_PORT).ipv4(&fields).eth(eth.0, eth.1).data().to_vec();
    frame[40..42].fill(0);
    frame
}

/// The UDP payload of an Ethernet frame, and the TTL; tags before IPv4 are passed over.
pub(super) fn payload(frame: &[u8]) -> Result<(&[u8], u8), Bad> {
    let mut at = 12;
    let ethertype = loop {
        let t: &[u8; 2] = frame.get(at..).and_then(|f| f.first_chunk()).ok_or(Bad::Short)?;
        match u16::from_be_bytes(*t) {
            0x8100 | 0x88a8 if at < 20 => at += 4,
            t => break t,
        }
    };
    if ethertype != 0x0800 {
        return Err(Bad::NotUdp);
    }
    let l3 = frame.get(at + 2..).ok_or(Bad::Short)?;
    let ip = fv_packet::hdr::ipv4::Ipv4::parse(l3).ok_or(Bad::NotUdp)?;
    if ip.proto() != 17 {
        return Err(Bad::NotUdp);
    }
    // Padding after the IP packet is not the payload's.
    let end = ip.total_len().min(l3.len());
    let udp = l3.get(ip.header_len()..end).ok_or(Bad::Short)?;
    Ok((udp.get(8..).ok_or(Bad::Short)?, ip.ttl()))
}
