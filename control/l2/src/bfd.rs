//! Bidirectional forwarding detection (RFC 5880, asynchronous mode without echo and authentication)
//! over single hops (RFC 5881): one session, which says when to send, takes what came, and knows
//! whether its port forwards.

mod config;
mod packet;
mod show;
#[cfg(test)]
mod tests;

use fv_core::Nanos;

pub use config::Config;
pub use packet::{Bad, Control, UDP_PORT};
use packet::{FLAG_FINAL, FLAG_POLL};

/// Least sending interval while a session is not up (RFC 5880, section 6.8.3).
const SLOW_TX_US: u32 = 1_000_000;
/// Least interval in which received data shows that the path works: statistics are seen that often.
const DATA_INTERVAL_US: u32 = 500_000;
/// With `forwarding_if_rx`, a control packet must still come every so many receive intervals.
const CONTROL_IF_RX: u32 = 100;
/// Receive intervals after which the data received is looked at for `decay_min_rx`.
const DECAY_INTERVALS: u32 = 10;

/// RFC 5880, section 4.1, `Sta`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    AdminDown = 0,
    Down = 1,
    Init = 2,
    Up = 3,
}

impl State {
    fn from_wire(b: u8) -> State {
        [State::AdminDown, State::Down, State::Init, State::Up][usize::from(b & 3)]
    }
    fn to_wire(self) -> u8 {
        self as u8
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(["admin_down", "down", "init", "up"][*self as usize])
    }
}

/// RFC 5880, section 4.1, `Diag`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Diagnostic(u8);

impl Diagnostic {
    pub const NONE: Diagnostic = Diagnostic(0);
    pub const EXPIRED: Diagnostic = Diagnostic(1);
    pub const NEIGHBOR_DOWN: Diagnostic = Diagnostic(3);
    pub const PATH_DOWN: Diagnostic = Diagnostic(5);
    pub const CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(6);
    pub const ADMIN_DOWN: Diagnostic = Diagnostic(7);
    pub const REVERSE_CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(8);

    fn from_wire(b: u8) -> Diagnostic {
        Diagnostic(b & 0x1f)
    }
    fn to_wire(self) -> u8 {
        self.0
    }
    /// The other end says that what lies behind it cannot be reached.
    fn is_path_down(self) -> bool {
        [Self::PATH_DOWN, Self::CONCATENATED_PATH_DOWN, Self::REVERSE_CONCATENATED_PATH_DOWN].contains(&self)
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 9] = [
            "No Diagnostic",
            "Control Detection Time Expired",
            "Echo Function Failed",
            "Neighbor Signaled Session Down",
            "Forwarding Plane Reset",
            "Path Down",
            "Concatenated Path Down",
            "Administratively Down",
            "Reverse Concatenated Path Down",
        ];
        f.write_str(NAMES.get(usize::from(self.0)).copied().unwrap_or("Invalid Diagnostic"))
    }
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug)]
struct Remote {
    state: State,
    diagnostic: Diagnostic,
    flags: u8,
    mult: u8,
    discriminator: u32,
    min_tx_us: u32,
    min_rx_us: u32,
}

impl Remote {
    /// Of an end that has not been heard of; the multiplier is kept.
    fn unknown(mult: u8) -> Remote {
        Remote {
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            flags: 0,
            mult,
            discriminator: 0,
            min_tx_us: 0,
            min_rx_us: 1000,
        }
    }
}

/// Data that a port receives, for `decay_min_rx` and `forwarding_if_rx`.
#[derive(Clone, Copy, Default, Debug)]
struct Data {
    /// Packets received at the last look.
    packets: u64,
    /// Control packets among those that came since.
    control: u64,
    next_look: Nanos,
    in_decay: bool,
    /// Until then, data shows that the path works.
    alive_until: Nanos,
    /// Until then, control packets bear `forwarding_if_rx` out.
    control_until: Nanos,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    name: String,
    config: Config,
    state: State,
    diagnostic: Diagnostic,
    discriminator: u32,
    /// What we say in packets.
    min_tx_us: u32,
    min_rx_us: u32,
    /// What holds until a poll sequence ends (RFC 5880, section 6.8.3).
    used_tx_us: u32,
    used_rx_us: u32,
    polling: bool,
    /// A poll of the other end is to be answered now.
    answer: bool,
    remote: Remote,
    data: Data,
    detect_at: Nanos,
    next_tx: Nanos,
    last_tx: Nanos,
    forced: Option<bool>,
    forwarding: bool,
    /// The same as the session alone has it.
    own_forwarding: bool,
    flaps: u64,
    random: u64,
}

impl Session {
    /// A session that starts down. `discriminator`, not zero, is unique on this host and hard to guess.
    pub fn new(name: &str, config: Config, discriminator: u32, now: Nanos) -> Session {
        let mut s = Session {
            name: name.into(),
            config,
            state: State::AdminDown,
            diagnostic: Diagnostic::NONE,
            discriminator: discriminator.max(1),
            min_tx_us: 0,
            min_rx_us: 0,
            used_tx_us: 0,
            used_rx_us: 0,
            polling: false,
            answer: false,
            remote: Remote::unknown(0),
            data: Data::default(),
            detect_at: Nanos::ZERO,
            next_tx: now,
            last_tx: Nanos::ZERO,
            forced: None,
            forwarding: false,
            own_forwarding: false,
            flaps: 0,
            random: u64::from(discriminator) << 1 | 1,
        };
        s.set_state(State::Down, Diagnostic::NONE, now);
        if s.config.cpath_down {
            s.diagnostic = Diagnostic::CONCATENATED_PATH_DOWN;
        }
        s.adopt_intervals(now);
        s
    }

    /// Takes over another configuration; the session goes on.
    pub fn set_config(&mut self, config: Config, now: Nanos) {
        if self.config == config {
            return;
        }
        let cpath = (self.config.cpath_down != config.cpath_down).then_some(config.cpath_down);
        if (self.config.decay_min_rx_us, self.config.min_rx_us) != (config.decay_min_rx_us, config.min_rx_us) {
            self.data.in_decay = false;
            self.data.next_look = Nanos::ZERO;
        }
        self.config = config;
        if let Some(down) = cpath {
            // A diagnostic that says something else stays until the state changes.
            let (from, to) = (Diagnostic::NONE, Diagnostic::CONCATENATED_PATH_DOWN);
            let (from, to) = if down { (from, to) } else { (to, from) };
            if self.diagnostic == from {
                self.diagnostic = to;
            }
            self.poll(now);
        }
        self.adopt_intervals(now);
        self.see_forwarding(now);
    }

    /// `bfd/set-forwarding`; None is what the session says.
    pub fn force_forwarding(&mut self, to: Option<bool>, now: Nanos) {
        self.forced = to;
        self.see_forwarding(now);
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the port may be sent to.
    pub fn forwarding(&self) -> bool {
        self.forwarding
    }

    /// What [`Session::status`] is made of, to see changes by.
    pub fn shown(&self) -> impl Copy + PartialEq + use<> {
        (self.forwarding, self.flaps, self.state, self.diagnostic, self.remote.state, self.remote.diagnostic)
    }

    /// What is due by time. `rx_packets` counts what the port has received, where that is known.
    pub fn run(&mut self, now: Nanos, rx_packets: Option<u64>) {
        if self.state > State::Down && now >= self.detect_at {
            self.set_state(State::Down, Diagnostic::EXPIRED, now);
        }
        if let Some(n) = rx_packets {
            self.look_at_data(n, now);
        }
        self.adopt_intervals(now);
        self.see_forwarding(now);
    }

    /// Whether [`Session::run`] wants to know what the port receives.
    pub fn wants_rx_packets(&self) -> bool {
        self.config.decay_min_rx_us > 0 || self.config.forwarding_if_rx
    }

    /// When to call `run` and `send` again, at the latest.
    pub fn wake_at(&self) -> Nanos {
        let mut at = if self.answer { Nanos::ZERO } else { self.next_tx };
        if self.state > State::Down {
            at = at.min(self.detect_at);
        }
        if self.wants_rx_packets() {
            at = at.min(self.data.next_look);
        }
        if self.config.forwarding_if_rx && self.forwarding {
            at = at.min(self.data.alive_until.max(self.detect_at));
        }
        at
    }

    /// The frame that is due now, if one is. `mac` is the port's own address.
    pub fn send(&mut self, mac: [u8; 6], now: Nanos) -> Option<Vec<u8>> {
        let answer = std::mem::take(&mut self.answer);
        if !answer && now < self.next_tx {
            return None;
        }
        let control = Control {
            diagnostic: self.diagnostic,
            state: self.state,
            // No packet carries both (section 6.5).
            flags: if answer {
                FLAG_FINAL
            } else if self.polling {
                FLAG_POLL
            } else {
                0
            },
            mult: self.config.mult,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            min_tx_us: self.min_tx_us,
            min_rx_us: self.min_rx_us,
            min_rx_echo_us: 0,
        };
        self.last_tx = now;
        self.schedule(now);
        let eth = (self.config.local_dst_mac, self.config.local_src_mac.unwrap_or(mac));
        let ip = (self.config.src_ip.unwrap_or(config::DEFAULT_SRC_IP), self.config.dst_ip);
        Some(packet::frame(control, eth, ip, (self.discriminator % 0x3fff) as u16))
    }

    /// Takes a received frame.
    pub fn receive(&mut self, frame: &[u8], now: Nanos) -> Result<(), Bad> {
        let (payload, ttl) = packet::payload(frame)?;
        if ttl != u8::MAX {
            return Err(Bad::Ttl(ttl));
        }
        let c = Control::parse(payload)?;
        match c.your_discriminator {
            0 if c.state > State::Down => return Err(Bad::NoYours(c.state)),
            0 => {}
            got if got != self.discriminator => return Err(Bad::NotOurs { got, ours: self.discriminator }),
            _ => {}
        }
        if self.remote.mult != c.mult {
            log::info!(target: "bfd", "Interface {} remote mult value {} changed to {}", self.name, self.remote.mult, c.mult);
        }
        let new_min_rx = self.remote.min_rx_us != c.min_rx_us;
        self.remote = Remote {
            state: c.state,
            diagnostic: c.diagnostic,
            flags: c.flags,
            mult: c.mult,
            discriminator: c.my_discriminator,
            min_tx_us: c.min_tx_us,
            min_rx_us: c.min_rx_us,
        };
        if c.flags & FLAG_FINAL != 0 && self.polling {
            self.polling = false;
            (self.used_tx_us, self.used_rx_us) = (self.min_tx_us, self.min_rx_us);
        }
        if new_min_rx {
            self.schedule_from(self.last_tx, now);
        }
        // Section 6.8.4: the remote's multiplier, and the slower of both intervals.
        self.detect_at = now.saturating_add(micros(self.rx_interval_us(), c.mult.into()));
        self.data.control += 1;
        self.data.control_until = now.saturating_add(micros(self.min_rx_us, CONTROL_IF_RX.into()));
        self.meet(c.state, now);
        self.answer |= c.flags & FLAG_POLL != 0;
        self.adopt_intervals(now);
        self.see_forwarding(now);
        Ok(())
    }

    /// The state machine of section 6.2.
    fn meet(&mut self, theirs: State, now: Nanos) {
        let next = match (self.state, theirs) {
            (State::AdminDown, _) => return,
            (State::Down, State::AdminDown) => return,
            (_, State::AdminDown) | (State::Up, State::Down) => State::Down,
            (State::Down, State::Down) => State::Init,
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => State::Up,
            _ => return,
        };
        let why = match next {
            State::Down => Diagnostic::NEIGHBOR_DOWN,
            _ if self.config.cpath_down => Diagnostic::CONCATENATED_PATH_DOWN,
            _ => self.diagnostic,
        };
        self.set_state(next, why, now);
    }

    fn set_state(&mut self, to: State, why: Diagnostic, now: Nanos) {
        if (self.state, self.diagnostic) == (to, why) {
            return;
        }
        log::info!(
            target: "bfd",
            "{}: BFD state change: {}->{to} \"{}\"->\"{why}\".", self.name, self.state, self.diagnostic
        );
        (self.state, self.diagnostic) = (to, why);
        if to <= State::Down {
            self.remote = Remote::unknown(self.remote.mult);
            self.polling = false;
            self.data.in_decay = false;
        }
        self.see_forwarding(now);
    }

    /// The intervals that configuration, state and data ask for.
    fn adopt_intervals(&mut self, now: Nanos) {
        let up = self.state == State::Up;
        let tx = if up { self.config.min_tx_us } else { self.config.min_tx_us.max(SLOW_TX_US) };
        let rx = if self.data.in_decay { self.config.decay_min_rx_us } else { self.config.min_rx_us };
        if (tx, rx) == (self.min_tx_us, self.min_rx_us) {
            return;
        }
        (self.min_tx_us, self.min_rx_us) = (tx, rx);
        // A slower sender and a more impatient receiver wait until the other end knows.
        if !up || tx < self.used_tx_us {
            self.used_tx_us = tx;
        }
        if !up || rx > self.used_rx_us {
            self.used_rx_us = rx;
        }
        if up {
            self.poll(now);
        }
        self.schedule_from(self.last_tx, now);
    }

    /// Starts a poll sequence, at once.
    fn poll(&mut self, now: Nanos) {
        if self.state > State::Down {
            log::info!(target: "bfd", "{}: Initiating poll sequence", self.name);
            self.polling = true;
            self.next_tx = now;
        }
    }

    fn tx_interval_us(&self) -> u32 {
        self.used_tx_us.max(self.remote.min_rx_us)
    }

    fn rx_interval_us(&self) -> u32 {
        self.used_rx_us.max(self.remote.min_tx_us)
    }

    /// The next sending: 75 to 100 % of the interval, at most 90 % where one loss is the end (section 6.8.7).
    fn schedule(&mut self, sent: Nanos) {
        // xorshift64: jitter needs no better.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let most = if self.config.mult == 1 { 900 } else { 1000 };
        let permille = 750 + self.random % (most - 750 + 1);
        self.next_tx = sent.saturating_add(Nanos(u64::from(self.tx_interval_us()) * permille));
    }

    /// A new interval counts from the last packet; a poll that is due stays due.
    fn schedule_from(&mut self, sent: Nanos, now: Nanos) {
        if !(self.polling && self.next_tx <= now) && sent != Nanos::ZERO {
            self.schedule(sent);
        }
    }

    fn look_at_data(&mut self, packets: u64, now: Nanos) {
        if now < self.data.next_look {
            return;
        }
        let first = self.data.next_look == Nanos::ZERO;
        let data = packets.saturating_sub(self.data.packets).saturating_sub(self.data.control);
        let control = std::mem::take(&mut self.data.control);
        self.data.packets = packets;
        let interval = if self.config.forwarding_if_rx {
            self.config.min_rx_us.max(DATA_INTERVAL_US)
        } else {
            self.config.min_rx_us.saturating_mul(DECAY_INTERVALS).max(DATA_INTERVAL_US)
        };
        self.data.next_look = now.saturating_add(micros(interval, 1));
        if first {
            return;
        }
        if self.config.forwarding_if_rx && data > 0 {
            let long = self.rx_interval_us().max(DATA_INTERVAL_US);
            self.data.alive_until = now.saturating_add(micros(long, self.remote.mult.max(1).into()));
        }
        let decays = self.config.decay_min_rx_us > self.config.min_rx_us && self.state == State::Up;
        // A few stray packets (address resolution, say) are no traffic.
        self.data.in_decay = decays && data <= control.max(2);
    }

    fn see_forwarding(&mut self, now: Nanos) {
        let by_data = self.config.forwarding_if_rx && now < self.data.alive_until && now < self.data.control_until;
        let is = (self.state == State::Up || by_data) && !self.remote.diagnostic.is_path_down();
        // What an operator forces is no flap.
        if is != self.own_forwarding {
            self.own_forwarding = is;
            self.flaps += 1;
        }
        self.forwarding = self.forced.unwrap_or(is);
    }
}

fn micros(us: u32, times: u64) -> Nanos {
    Nanos(u64::from(us) * 1000 * times)
}
