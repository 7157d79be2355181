//! Host names of streams. A name server may take seconds, so a thread of its own asks it (through the
//! system's resolver) and the caller, who tries again anyway as after any failed connection, finds the
//! answer then. What was found is used for a while, and longer if the name server stops answering.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer is asked for again after this long; until there is a new one the old one serves.
const FRESH: Duration = Duration::from_secs(60);
/// A name that could not be found is asked for again after this long.
const RETRY: Duration = Duration::from_secs(1);
/// Questions at a time: what a database full of names may cost.
const ASKING_MAX: usize = 4;
/// Names remembered.
const NAMES_MAX: usize = 1024;

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    Address(IpAddr),
    /// The question is out, or will be.
    Pending,
    NotFound,
}

struct Entry {
    answer: Known,
    at: Instant,
    asking: bool,
}

/// Remembers answers; asks through `ask`.
struct Names {
    entries: Mutex<HashMap<String, Entry>>,
}

impl Names {
    /// What is known now, and whether the caller should ask.
    fn look(&self, host: &str, now: Instant) -> (Known, bool) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let asking = entries.values().filter(|e| e.asking).count();
        if !entries.contains_key(host) && entries.len() >= NAMES_MAX {
            entries.retain(|_, e| e.asking || now.duration_since(e.at) < FRESH);
            if entries.len() >= NAMES_MAX {
                return (Known::NotFound, false);
            }
        }
        let new = Entry { answer: Known::Pending, at: now, asking: false };
        let e = entries.entry(host.to_string()).or_insert(new);
        let age = now.duration_since(e.at);
        let stale = match e.answer {
            Known::Address(_) => age >= FRESH,
            Known::NotFound => age >= RETRY,
            Known::Pending => true,
        };
        let ask = stale && !e.asking && asking < ASKING_MAX;
        e.asking |= ask;
        (e.answer, ask)
    }

    fn learn(&self, host: &str, found: Option<IpAddr>, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(e) = entries.get_mut(host) else { return };
        (e.asking, e.at) = (false, now);
        match (found, e.answer) {
            (Some(ip), _) => e.answer = Known::Address(ip),
            // Better a possibly old address than none.
            (None, Known::Address(_)) => {}
            (None, _) => e.answer = Known::NotFound,
        }
    }
}

static NAMES: std::sync::LazyLock<Names> = std::sync::LazyLock::new(|| Names { entries: Mutex::default() });

/// The address of `host`, as far as it is known; never waits.
pub fn look(host: &str) -> Known {
    let (known, ask) = NAMES.look(host, Instant::now());
    if ask {
        let name = host.to_string();
        let asker = std::thread::Builder::new().name("resolver".into());
        let spawned = asker.spawn(move || NAMES.learn(&name, resolve(&name), Instant::now()));
        if spawned.is_err() {
            NAMES.learn(host, None, Instant::now());
        }
    }
    known
}

/// The resolver's first IPv4 address, or else its first.
fn resolve(host: &str) -> Option<IpAddr> {
    let all: Vec<IpAddr> = (host, 0).to_socket_addrs().ok()?.map(|a| a.ip()).collect();
    all.iter().find(|ip| ip.is_ipv4()).or(all.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_serve_until_there_is_a_newer_one() {
        let names = Names { entries: Mutex::default() };
        let t0 = Instant::now();
        let at = |s: u64| t0 + Duration::from_secs(s);
        let ip = |n: u8| IpAddr::from([198, 18, 0, n]);
        assert_eq!(names.look("a", at(0)), (Known::Pending, true));
        assert_eq!(names.look("a", at(1)), (Known::Pending, false), "one question at a time");
        names.learn("a", None, at(2));
        assert_eq!(names.look("a", at(2)), (Known::NotFound, false));
        assert_eq!(names.look("a", at(3)), (Known::NotFound, true));
        names.learn("a", Some(ip(1)), at(4));
        assert_eq!(names.look("a", at(63)), (Known::Address(ip(1)), false));
        assert_eq!(names.look("a", at(64)), (Known::Address(ip(1)), true), "looked up again meanwhile");
        names.learn("a", None, at(65));
        assert_eq!(names.look("a", at(66)), (Known::Address(ip(1)), false), "the name server is away");
        names.look("a", at(200));
        names.learn("a", Some(ip(2)), at(201));
        assert_eq!(names.look("a", at(202)), (Known::Address(ip(2)), false));
    }

    #[test]
    fn questions_and_names_are_bounded() {
        let names = Names { entries: Mutex::default() };
        let t0 = Instant::now();
        let asked = (0..2 * NAMES_MAX).filter(|n| names.look(&n.to_string(), t0).1).count();
        assert_eq!(asked, ASKING_MAX);
        assert_eq!(names.entries.lock().unwrap().len(), NAMES_MAX);
        (0..ASKING_MAX).for_each(|n| names.learn(&n.to_string(), None, t0));
        assert!(names.look("9", t0).1, "the next get their turn");
        let later = t0 + FRESH;
        assert_eq!(names.look("new", later).0, Known::Pending, "old names give way");
    }

    #[test]
    fn the_system_answers() {
        let started = Instant::now();
        while look("localhost") == Known::Pending {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_ne!(look("localhost"), Known::Pending);
    }
}
