//! Levels and destinations.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    Off,
    Emer,
    Err,
    Warn,
    Info,
    Dbg,
}

impl Level {
    pub const ALL: [Level; 6] = [Level::Off, Level::Emer, Level::Err, Level::Warn, Level::Info, Level::Dbg];

    pub fn parse(s: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(s))
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Off => "OFF",
            Level::Emer => "EMER",
            Level::Err => "ERR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Dbg => "DBG",
        }
    }

    /// Severity of syslog.
    pub fn severity(self) -> u8 {
        match self {
            Level::Off => 7,
            Level::Emer => 1,
            Level::Err => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Dbg => 7,
        }
    }

    pub fn filter(self) -> log::LevelFilter {
        match self {
            Level::Off | Level::Emer => log::LevelFilter::Off,
            Level::Err => log::LevelFilter::Error,
            Level::Warn => log::LevelFilter::Warn,
            Level::Info => log::LevelFilter::Info,
            Level::Dbg => log::LevelFilter::Debug,
        }
    }

    pub fn from_u8(n: u8) -> Level {
        Level::ALL.get(usize::from(n)).copied().unwrap_or(Level::Dbg)
    }
}

impl From<log::Level> for Level {
    fn from(l: log::Level) -> Level {
        match l {
            log::Level::Error => Level::Err,
            log::Level::Warn => Level::Warn,
            log::Level::Info => Level::Info,
            log::Level::Debug | log::Level::Trace => Level::Dbg,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    Syslog,
    Console,
    File,
}

impl Destination {
    pub const ALL: [Destination; 3] = [Destination::Syslog, Destination::Console, Destination::File];

    pub fn parse(s: &str) -> Option<Destination> {
        Destination::ALL.into_iter().find(|d| d.name().eq_ignore_ascii_case(s))
    }

    pub fn name(self) -> &'static str {
        match self {
            Destination::Syslog => "SYSLOG",
            Destination::Console => "CONSOLE",
            Destination::File => "FILE",
        }
    }

    pub fn default_pattern(self) -> &'static str {
        match self {
            Destination::Syslog => "ovs|%05N|%c%T|%p|%m",
            Destination::Console => "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m",
            Destination::File => "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
        }
    }
}
