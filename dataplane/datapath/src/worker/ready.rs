//! Which receive queues have something, from one system call instead of one a queue.
//!
//! A worker of kernel devices may hold hundreds of quiet queues; looking into each costs a system
//! call, in every turn and while it spins for the next packet.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

/// Queues that one look can find; the kernel hands out the others next time.
const EVENTS: usize = 64;
/// Fewer queues with a descriptor than this are looked into directly.
const WORTH_IT: usize = 2;

/// Descriptors of queues, by the queues' index.
pub struct ReadySet {
    epoll: OwnedFd,
    /// Queues that have no descriptor: always looked into.
    blind: Vec<usize>,
}

impl ReadySet {
    /// None where asking would not save anything, or cannot be done.
    pub fn new<'a>(queues: impl Iterator<Item = Option<BorrowedFd<'a>>>) -> Option<ReadySet> {
        let all: Vec<_> = queues.collect();
        if all.iter().flatten().count() < WORTH_IT {
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
        Ok(ReadySet { epoll, blind })
    }

    /// Appends the indices of queues that may have packets.
    pub fn collect(&self, out: &mut Vec<usize>) {
        out.extend_from_slice(&self.blind);
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&now)) {
            out.extend(events.iter().map(|e| e.data.u64() as usize));
        }
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
    fn few_descriptors_are_not_worth_it() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert!(ReadySet::new([Some(a.as_fd()), None, None].into_iter()).is_none());
        assert!(ReadySet::new([None, None].into_iter()).is_none());
    }
}
