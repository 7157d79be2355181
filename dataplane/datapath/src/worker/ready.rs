//! Which receive queues have something, from one system call instead of one a queue.
//!
//! A worker of kernel devices may hold hundreds of quiet queues; looking into each costs a system
//! call, in every turn and while it spins for the next packet. The same call is what an event worker
//! sleeps in, so that a wake-up knows where to look.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{Timespec, epoll};

/// Queues that one look can find; the kernel hands out the others next time.
const EVENTS: usize = 64;
/// Kernel data of the alarm.
const ALARM: u64 = u64::MAX;

/// Descriptors of queues, by the queues' index.
pub struct ReadySet {
    epoll: OwnedFd,
    /// Queues that have no descriptor: always looked into.
    blind: Vec<usize>,
    /// What else ends a sleep, by the kernel's number.
    alarm: Option<RawFd>,
}

impl ReadySet {
    /// None where no queue has a descriptor, or asking cannot be done.
    pub fn new<'a>(queues: impl Iterator<Item = Option<BorrowedFd<'a>>>) -> Option<ReadySet> {
        let all: Vec<_> = queues.collect();
        if all.iter().all(Option::is_none) {
            return None;
        }
        match ReadySet::build(&all) {
            Ok(set) => Some(set),
            Err(e) => {
                log::debug!(target: "dpif_netdev", "no epoll for receive queues: {e}");
                None
            }
        }
    }

    fn build(all: &[Option<BorrowedFd<'_>>]) -> io::Result<ReadySet> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut blind = Vec::new();
        for (i, fd) in all.iter().enumerate() {
            match fd {
                Some(fd) => epoll::add(&epoll, fd, epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)?,
                None => blind.push(i),
            }
        }
        Ok(ReadySet { epoll, blind, alarm: None })
    }

    /// Appends the indices of queues that may have packets.
    pub fn collect(&self, out: &mut Vec<usize>) {
        self.look(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }), out);
    }

    /// Sleeps until there is something to append or `alarm` can be read; whether the latter.
    pub fn sleep(&mut self, alarm: BorrowedFd<'_>, out: &mut Vec<usize>) -> io::Result<bool> {
        if self.alarm != Some(alarm.as_raw_fd()) {
            epoll::add(&self.epoll, alarm, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN)?;
            self.alarm = Some(alarm.as_raw_fd());
        }
        Ok(self.look(None, out))
    }

    fn look(&self, timeout: Option<&Timespec>, out: &mut Vec<usize>) -> bool {
        out.extend_from_slice(&self.blind);
        let mut rang = false;
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, timeout) {
            for data in events.iter().map(|e| e.data.u64()) {
                if data == ALARM {
                    rang = true;
                } else {
                    out.push(data as usize);
                }
            }
        }
        rang
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn finds_what_is_readable_and_what_cannot_say() {
        let mut pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let set = {
            let fds = pairs.iter().map(|(a, _)| Some(a.as_fd())).chain([None]);
            ReadySet::new(fds).expect("many descriptors")
        };
        let look = || {
            let mut out = Vec::new();
            set.collect(&mut out);
            out.sort_unstable();
            out
        };
        assert_eq!(look(), [100]);
        for i in [3, 97] {
            pairs[i].1.write_all(b"x").unwrap();
        }
        assert_eq!(look(), [3, 97, 100]);
        assert_eq!(look(), [3, 97, 100], "until it is read");
        pairs[3].0.read_exact(&mut [0]).unwrap();
        assert_eq!(look(), [97, 100]);
        // More than one look can hold are all found in turn.
        pairs.iter_mut().for_each(|(_, b)| b.write_all(b"x").unwrap());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            seen.extend(look());
        }
        assert_eq!(seen.len(), 101);
    }

    #[test]
    fn sleeps_until_a_queue_or_the_alarm() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let (alarm, mut ring) = UnixStream::pair().unwrap();
        let mut set = ReadySet::new([None, Some(a.as_fd())].into_iter()).expect("a descriptor");
        let mut sleep = || {
            let mut out = Vec::new();
            let rang = set.sleep(alarm.as_fd(), &mut out).unwrap();
            (rang, out)
        };
        b.write_all(b"x").unwrap();
        assert_eq!(sleep(), (false, vec![0, 1]));
        ring.write_all(b"x").unwrap();
        let (rang, mut out) = sleep();
        out.sort_unstable();
        assert_eq!((rang, out), (true, vec![0, 1]));
        (&a).read_exact(&mut [0]).unwrap();
        assert_eq!(sleep(), (true, vec![0]));
    }

    #[test]
    fn there_is_nothing_to_ask_without_descriptors() {
        assert!(ReadySet::new([None, None].into_iter()).is_none());
    }
}
