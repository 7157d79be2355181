//! The bounded list of packets that go through the datapath once more.

use std::collections::VecDeque;

use fv_packet::Packet;

/// Packets that may wait for their next pass.
pub const WORK_MAX: usize = 1024;

pub struct Job {
    pub packet: Packet,
    /// Passes behind it.
    pub depth: u8,
}

pub struct WorkList {
    jobs: VecDeque<Job>,
}

impl Default for WorkList {
    fn default() -> WorkList {
        WorkList { jobs: VecDeque::with_capacity(WORK_MAX) }
    }
}

impl WorkList {
    pub fn push(&mut self, job: Job) -> Result<(), Job> {
        if self.jobs.len() == WORK_MAX {
            return Err(job);
        }
        self.jobs.push_back(job);
        Ok(())
    }

    /// The next job if it is of `depth`, or of any.
    pub fn pop(&mut self, depth: Option<u8>) -> Option<Job> {
        let next = self.jobs.front()?;
        match depth {
            Some(d) if d != next.depth => None,
            _ => self.jobs.pop_front(),
        }
    }
}
