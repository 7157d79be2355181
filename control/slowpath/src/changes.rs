//! Which rules have changed lately, so that a round need not translate flows that they cannot concern.
//!
//! A rule does not concern a flow whose translation never looked into its table, nor one all of whose packets
//! differ from it in a bit that was still the packet's own whenever tables were looked into. (Which of two rules
//! of one priority wins, where both match, OpenFlow leaves open; a change may decide that anew for later flows.)

use std::collections::VecDeque;

use fv_core::DpPort;
use fv_flow::DpKey;
use fv_flow::key::{Base, DP_WORDS, Opts, Pipe};
use fv_ofproto::RuleRef;
use fv_ofproto::view::{BridgeId, View};
use fv_xlate::Looked;

use crate::ukey::Ukey;

/// Rules that are remembered. To test a flow against so many costs about as much as to translate it.
const MAX_RULES: usize = 64;

/// Where the port of entry is in a key.
const PORT_WORD: usize = std::mem::offset_of!(Base, in_port) / 8;

/// Where the tunnel's options are, and what says which there are.
const OPTIONS: std::ops::Range<usize> = {
    let from = std::mem::offset_of!(DpKey, opts) / 8;
    from..from + size_of::<Opts>() / 8
};
const OPTIONS_PRESENT: usize = DP_WORDS + std::mem::offset_of!(Pipe, tun_present) / 8;

/// A changed rule as flows are tested against it.
#[derive(Clone)]
struct Test {
    /// The model's sequence number from which on it is in effect, or gone.
    seq: u64,
    table: u64,
    /// Word of the key, mask, value.
    words: Box<[(u8, u64, u64)]>,
}

/// Everything that changed after sequence number `since`.
#[derive(Clone, Default)]
pub struct Changes {
    since: u64,
    tests: VecDeque<Test>,
}

impl Changes {
    /// Something else than rules has changed, or too many of them.
    pub fn forget(&mut self, seq: u64) {
        self.tests.clear();
        self.since = seq;
    }

    /// Rules of `bridge` that come or go with `seq`.
    pub fn add(&mut self, seq: u64, bridge: BridgeId, rules: &[RuleRef]) {
        if rules.len() > MAX_RULES {
            return self.forget(seq);
        }
        while self.tests.len() + rules.len() > MAX_RULES
            && let Some(old) = self.tests.pop_front()
        {
            self.since = self.since.max(old.seq);
        }
        self.tests.extend(rules.iter().map(|r| Test {
            seq,
            table: Looked::table_bit(bridge, r.table),
            words: r.matches().iter().map(|(w, mask, value)| (w as u8, mask, value)).collect(),
        }));
    }

    /// Whether nothing that changed after `seq` can concern the flow.
    pub fn spare(&self, view: &View, ukey: &Ukey, looked: Looked, seq: u64) -> bool {
        if seq < self.since || looked == Looked::ALL {
            return false;
        }
        let mut news = self.tests.iter().rev().take_while(|t| t.seq > seq).filter(|t| t.table & looked.tables != 0);
        let Some(first) = news.next() else { return true };
        // The pipeline has another number for the port.
        let mut head = DpKey::default();
        head.words_mut()[PORT_WORD] = ukey.key.word(PORT_WORD);
        let Some((_, port)) = view.by_dp_port.get(&DpPort(head.base.in_port)) else { return false };
        head.base.in_port = port.0;
        let differs = |t: &Test| {
            t.words.iter().any(|(w, m, value)| {
                let w = usize::from(*w);
                let (key, known) = match w {
                    PORT_WORD => (head.words()[PORT_WORD], ukey.mask.word(PORT_WORD)),
                    // The datapath has these in another form.
                    w if OPTIONS.contains(&w) || w == OPTIONS_PRESENT => (0, 0),
                    // What only the pipeline has is zero at first, for all packets.
                    DP_WORDS.. => (0, u64::MAX),
                    _ => (ukey.key.word(w), ukey.mask.word(w)),
                };
                looked.altered >> w & 1 == 0 && (key ^ value) & m & known != 0
            })
        };
        differs(first) && news.all(differs)
    }
}
