//! When to connect, probe, give up and wait: the state machine behind every connection that is
//! kept up. It does no I/O and knows no clock; its owner tells it what happened and when, and
//! asks `run` what to do.
//!
//! Log lines go to module `reconnect` in the words that operators' scripts look for.

use std::fmt;

use fv_core::Nanos;

/// Backoff and inactivity probe unless set otherwise.
pub const DEFAULT_MIN_BACKOFF: Nanos = Nanos::from_secs(1);
pub const DEFAULT_MAX_BACKOFF: Nanos = Nanos::from_secs(8);
pub const DEFAULT_PROBE_INTERVAL: Nanos = Nanos::from_secs(5);
/// No attempt and no probe is given less than this.
const MIN_WAIT: Nanos = Nanos::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Disabled, or out of tries.
    Void,
    Backoff,
    Connecting,
    Active,
    /// Nothing heard for the probe interval; a probe is on its way.
    Idle,
    /// To be dropped at the next `run`.
    Reconnecting,
    Listening,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Void => "VOID",
            State::Backoff => "BACKOFF",
            State::Connecting => "CONNECTING",
            State::Active => "ACTIVE",
            State::Idle => "IDLE",
            State::Reconnecting => "RECONNECT",
            State::Listening => "LISTENING",
        })
    }
}

/// What the owner has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Start to connect (or, in passive mode, to listen); then tell `connecting` or the outcome.
    Connect,
    /// Drop the connection or the attempt; then tell `disconnected`.
    Disconnect,
    /// Send something that is answered.
    Probe,
}

/// Why a connection or an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause<'a> {
    Error(&'a str),
    Eof,
    /// By our own decision, e.g. a timeout.
    Ours,
}

/// Figures for status columns and displays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub n_attempted_connections: u64,
    pub n_successful_connections: u64,
    pub total_connected: Nanos,
    /// None: never.
    pub last_connected: Option<Nanos>,
    pub last_disconnected: Option<Nanos>,
    pub last_activity: Option<Nanos>,
}

pub struct Reconnect {
    name: String,
    quiet: bool,
    passive: bool,
    min_backoff: Nanos,
    max_backoff: Nanos,
    /// Zero switches probes off.
    probe_interval: Nanos,
    tries_left: Option<u32>,
    backoff_free_tries: u32,
    state: State,
    entered: Nanos,
    backoff: Nanos,
    stats: Stats,
}

impl Reconnect {
    pub fn new(name: &str, now: Nanos) -> Reconnect {
        Reconnect {
            name: name.to_string(),
            quiet: false,
            passive: false,
            min_backoff: DEFAULT_MIN_BACKOFF,
            max_backoff: DEFAULT_MAX_BACKOFF,
            probe_interval: DEFAULT_PROBE_INTERVAL,
            tries_left: None,
            backoff_free_tries: 0,
            state: State::Void,
            entered: now,
            backoff: Nanos::ZERO,
            stats: Stats::default(),
        }
    }

    pub fn set_name(&mut self, name: &str) {
        self.name = name.to_string();
    }

    /// Logs progress at debug level only.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Limits the attempts from now on; None removes the limit.
    pub fn set_max_tries(&mut self, n: Option<u32>) {
        self.tries_left = n;
    }

    /// So many attempts come without a wait before them.
    pub fn set_backoff_free_tries(&mut self, n: u32) {
        self.backoff_free_tries = n;
    }

    /// Zero stands for the default.
    pub fn set_backoff(&mut self, min: Nanos, max: Nanos) {
        self.min_backoff = min.max(MIN_WAIT);
        self.max_backoff = if max == Nanos::ZERO { DEFAULT_MAX_BACKOFF } else { max.max(MIN_WAIT) };
        self.max_backoff = self.max_backoff.max(self.min_backoff);
        if self.state == State::Backoff && self.backoff > self.max_backoff {
            self.backoff = self.max_backoff;
        }
    }

    /// Zero switches probes off; anything else is at least a second.
    pub fn set_probe_interval(&mut self, interval: Nanos) {
        self.probe_interval = if interval == Nanos::ZERO { interval } else { interval.max(MIN_WAIT) };
    }

    /// Listen instead of connecting.
    pub fn set_passive(&mut self, passive: bool, now: Nanos) {
        if self.passive == passive {
            return;
        }
        self.passive = passive;
        let wrong = match self.state {
            State::Connecting | State::Reconnecting => passive,
            State::Listening => !passive,
            _ => false,
        };
        if wrong && self.may_try() {
            self.enter(State::Backoff, now);
            self.backoff = Nanos::ZERO;
        }
    }

    pub fn enable(&mut self, now: Nanos) {
        if self.state == State::Void && self.may_try() {
            self.enter(State::Backoff, now);
            self.backoff = Nanos::ZERO;
        }
    }

    pub fn disable(&mut self, now: Nanos) {
        if self.state != State::Void {
            self.enter(State::Void, now);
        }
    }

    /// Drops what there is and connects anew at once.
    pub fn force_reconnect(&mut self, now: Nanos) {
        if matches!(self.state, State::Connecting | State::Active | State::Idle) {
            self.enter(State::Reconnecting, now);
        }
    }

    /// An attempt was started.
    pub fn connecting(&mut self, now: Nanos) {
        if self.state != State::Connecting {
            match self.passive {
                true => self.say(self.info(), format_args!("listening...")),
                false => self.say(self.level(), format_args!("connecting...")),
            }
            self.enter(State::Connecting, now);
        }
    }

    /// We listen, and wait for a peer.
    pub fn listening(&mut self, now: Nanos) {
        if self.state != State::Listening {
            self.say(self.info(), format_args!("listening..."));
            self.enter(State::Listening, now);
        }
    }

    /// Listening failed; a connection that exists goes on.
    pub fn listen_error(&mut self, now: Nanos, error: &str) {
        if self.state == State::Listening {
            self.disconnected(now, Cause::Error(error));
        }
    }

    pub fn connected(&mut self, now: Nanos) {
        if !self.is_connected() {
            self.connecting(now);
            self.say(self.info(), format_args!("connected"));
            self.enter(State::Active, now);
            self.stats.last_connected = Some(now);
        }
    }

    pub fn connect_failed(&mut self, now: Nanos, cause: Cause<'_>) {
        self.connecting(now);
        self.disconnected(now, cause);
    }

    /// The connection or the attempt is gone.
    pub fn disconnected(&mut self, now: Nanos, cause: Cause<'_>) {
        if matches!(self.state, State::Backoff | State::Void) {
            return;
        }
        self.say_ended(cause);
        if self.is_connected() {
            self.stats.last_disconnected = Some(now);
        }
        if self.state == State::Reconnecting && self.stats.last_connected > self.stats.last_disconnected {
            self.stats.last_disconnected = Some(now);
        }
        if !self.may_try() {
            self.enter(State::Void, now);
            return;
        }
        self.backoff = self.next_backoff();
        self.enter(State::Backoff, now);
    }

    /// Something was received.
    pub fn activity(&mut self, now: Nanos) {
        if self.state == State::Idle {
            self.enter(State::Active, now);
        }
        self.stats.last_activity = Some(now);
    }

    /// What is to be done now. Asking again without having done it gives the same answer.
    pub fn run(&mut self, now: Nanos) -> Option<Action> {
        if now < self.wake_at() {
            return None;
        }
        match self.state {
            State::Void | State::Listening => None,
            State::Backoff => Some(Action::Connect),
            State::Connecting | State::Reconnecting => Some(Action::Disconnect),
            State::Active => {
                let idle = now.saturating_sub(self.last_heard());
                self.say(log::Level::Debug, format_args!("idle {} ms, sending inactivity probe", idle.ms()));
                self.enter(State::Idle, now);
                Some(Action::Probe)
            }
            State::Idle => {
                let waited = now.saturating_sub(self.entered);
                self.say(
                    log::Level::Error,
                    format_args!("no response to inactivity probe after {} seconds, disconnecting", Seconds(waited)),
                );
                Some(Action::Disconnect)
            }
        }
    }

    /// When `run` has something to say next; MAX for never.
    pub fn wake_at(&self) -> Nanos {
        match self.state {
            State::Void | State::Listening => Nanos::MAX,
            State::Backoff => self.entered.saturating_add(self.backoff),
            State::Connecting => self.entered.saturating_add(self.backoff.max(MIN_WAIT)),
            State::Active if self.probe_interval != Nanos::ZERO => {
                self.last_heard().saturating_add(self.probe_interval)
            }
            State::Idle if self.probe_interval != Nanos::ZERO => self.entered.saturating_add(self.probe_interval),
            State::Active | State::Idle => Nanos::MAX,
            State::Reconnecting => self.entered,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn state(&self) -> State {
        self.state
    }
    pub fn backoff(&self) -> Nanos {
        self.backoff
    }
    pub fn is_passive(&self) -> bool {
        self.passive
    }
    pub fn probe_interval(&self) -> Nanos {
        self.probe_interval
    }
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Idle)
    }

    /// False once it is disabled or out of tries.
    pub fn is_alive(&self) -> bool {
        self.state != State::Void
    }

    pub fn stats(&self, now: Nanos) -> Stats {
        let mut s = self.stats;
        if let (true, Some(t)) = (self.is_connected(), s.last_connected) {
            s.total_connected += now.saturating_sub(t);
        }
        s
    }

    fn last_heard(&self) -> Nanos {
        self.stats.last_activity.unwrap_or(Nanos::ZERO).max(self.entered)
    }

    fn may_try(&mut self) -> bool {
        match &mut self.tries_left {
            None => true,
            Some(0) => false,
            Some(n) => {
                *n -= 1;
                true
            }
        }
    }

    fn enter(&mut self, state: State, now: Nanos) {
        if self.state == State::Connecting {
            self.stats.n_attempted_connections += 1;
            if state == State::Active {
                self.stats.n_successful_connections += 1;
            }
        }
        let connected = |s| matches!(s, State::Active | State::Idle);
        if let (true, false, Some(t)) = (connected(self.state), connected(state), self.stats.last_connected) {
            self.stats.total_connected += now.saturating_sub(t);
        }
        self.say(log::Level::Debug, format_args!("entering {state}"));
        self.state = state;
        self.entered = now;
    }

    /// The wait before the next attempt: short again after a connection that proved itself,
    /// else longer each time.
    fn next_backoff(&mut self) -> Nanos {
        if self.backoff_free_tries > 1 {
            self.backoff_free_tries -= 1;
            return Nanos::ZERO;
        }
        if self.passive && self.is_connected() {
            // The peer decides when it comes back.
            return Nanos::ZERO;
        }
        let proved = self.is_connected() && {
            let heard = self.stats.last_activity.unwrap_or(Nanos::ZERO);
            let since = heard.saturating_sub(self.stats.last_connected.unwrap_or(Nanos::ZERO));
            since >= self.backoff && since != Nanos::ZERO
        };
        if proved {
            return self.min_backoff;
        }
        if self.backoff < self.min_backoff {
            return self.min_backoff;
        }
        let (wait, again) = match self.passive {
            false => ("reconnect", "reconnect"),
            true => ("trying to listen again", "try to listen"),
        };
        if self.backoff.0 < self.max_backoff.0 / 2 {
            let next = Nanos(self.backoff.0 * 2);
            self.say(self.info(), format_args!("waiting {} seconds before {wait}", Seconds(next)));
            return next;
        }
        if self.backoff < self.max_backoff {
            self.say(
                self.info(),
                format_args!("continuing to {again} in the background but suppressing further logging"),
            );
        }
        self.max_backoff
    }

    fn say_ended(&self, cause: Cause<'_>) {
        let what = if self.passive { "listen" } else { "connection" };
        match (self.state, cause) {
            (State::Active | State::Idle, Cause::Error(e)) => {
                self.say(log::Level::Warn, format_args!("connection dropped ({e})"));
            }
            (State::Active | State::Idle, Cause::Eof) => {
                self.say(self.info(), format_args!("connection closed by peer"));
            }
            (State::Active | State::Idle, Cause::Ours) => self.say(self.info(), format_args!("connection dropped")),
            (State::Listening, Cause::Error(e)) => {
                self.say(log::Level::Warn, format_args!("error listening for connections ({e})"));
            }
            (State::Listening, _) => self.say(self.info(), format_args!("error listening for connections")),
            (State::Reconnecting, _) => self.say(self.info(), format_args!("connection closed by client")),
            (_, Cause::Error(e)) => self.say(self.level(), format_args!("{what} attempt failed ({e})")),
            _ => self.say(self.level(), format_args!("{what} attempt timed out")),
        }
    }

    fn info(&self) -> log::Level {
        if self.quiet { log::Level::Debug } else { log::Level::Info }
    }

    /// Level of what repeats with each attempt: once the waits are as long as they get, there
    /// has been enough of it.
    fn level(&self) -> log::Level {
        if self.backoff >= self.max_backoff { log::Level::Debug } else { self.info() }
    }

    fn say(&self, level: log::Level, text: fmt::Arguments<'_>) {
        log::log!(target: "reconnect", level, "{}: {text}", self.name);
    }
}

/// Seconds with at most three significant digits, as `%.3g` prints them.
pub(crate) struct Seconds(pub Nanos);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0.0 as f64 / 1e9;
        let decimals = match s {
            _ if s >= 100.0 => 0,
            _ if s >= 10.0 => 1,
            _ if s >= 1.0 => 2,
            _ => 3,
        };
        let text = format!("{s:.decimals$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        f.write_str(text)
    }
}
