//! A binary trie of prefixes with compressed edges: which prefix lengths cover a value, and how
//! many of its bits it takes to know that.

/// A bit string of fixed length, most significant bit first.
pub(crate) trait Bits: Copy + Eq {
    const N: u8;
    /// The first `n` bits, the rest zero.
    fn top(self, n: u8) -> Self;
    fn bit(self, i: u8) -> usize;
    /// Number of leading bits that agree.
    fn common(self, o: Self) -> u8;
}

macro_rules! bits {
    ($t:ty) => {
        impl Bits for $t {
            const N: u8 = <$t>::BITS as u8;
            fn top(self, n: u8) -> Self {
                if n == 0 { 0 } else { self & (<$t>::MAX << (Self::N - n.min(Self::N))) }
            }
            fn bit(self, i: u8) -> usize {
                (self >> (Self::N - 1 - i) & 1) as usize
            }
            fn common(self, o: Self) -> u8 {
                (self ^ o).leading_zeros() as u8
            }
        }
    };
}
bits!(u32);
bits!(u128);

type Link<B> = Option<Box<Node<B>>>;

struct Node<B> {
    bits: B,
    /// Length of the prefix from the root.
    len: u8,
    /// Rules with exactly this prefix.
    rules: u32,
    child: [Link<B>; 2],
}

impl<B: Bits> Node<B> {
    fn leaf(value: B, len: u8) -> Box<Self> {
        Box::new(Node { bits: value.top(len), len, rules: 1, child: [None, None] })
    }
}

pub(crate) struct Trie<B> {
    root: Link<B>,
}

impl<B> Default for Trie<B> {
    fn default() -> Self {
        Trie { root: None }
    }
}

impl<B: Bits> Trie<B> {
    /// Counts one more rule with the first `len` (1..=N) bits of `value`.
    pub(crate) fn insert(&mut self, value: B, len: u8) {
        let mut slot = &mut self.root;
        loop {
            let Some(node) = slot else {
                *slot = Some(Node::leaf(value, len));
                return;
            };
            let common = value.common(node.bits).min(node.len).min(len);
            if common < node.len {
                let mut fork = Node { bits: value.top(common), len: common, rules: 0, child: [None, None] };
                let side = node.bits.bit(common);
                fork.child[side] = slot.take();
                if len == common {
                    fork.rules = 1;
                } else {
                    fork.child[1 - side] = Some(Node::leaf(value, len));
                }
                *slot = Some(Box::new(fork));
                return;
            }
            if len == node.len {
                node.rules += 1;
                return;
            }
            let side = value.bit(node.len);
            slot = match slot {
                Some(n) => &mut n.child[side],
                None => return,
            };
        }
    }

    /// Undoes one `insert`.
    pub(crate) fn remove(&mut self, value: B, len: u8) {
        Self::remove_at(&mut self.root, value, len);
    }

    fn remove_at(slot: &mut Link<B>, value: B, len: u8) {
        let Some(node) = slot else { return };
        if node.len > len || value.common(node.bits) < node.len {
            return;
        }
        if node.len == len {
            node.rules = node.rules.saturating_sub(1);
        } else {
            Self::remove_at(&mut node.child[value.bit(node.len)], value, len);
        }
        if node.rules == 0 {
            match &mut node.child {
                [None, None] => *slot = None,
                [Some(_), Some(_)] => {}
                [a, b] => *slot = a.take().or(b.take()),
            }
        }
    }

    /// (bits, lengths): bit `n - 1` of `lengths` says that a prefix of length n covers `value`; any
    /// value that agrees in the first `bits` bits has the same lengths.
    pub(crate) fn lookup(&self, value: B) -> (u8, u128) {
        let mut lengths = 0u128;
        let Some(mut node) = self.root.as_deref() else { return (0, 0) };
        loop {
            let common = value.common(node.bits).min(node.len);
            if common < node.len {
                return (common + 1, lengths);
            }
            if node.rules > 0 && node.len > 0 {
                lengths |= 1 << (node.len - 1);
            }
            if node.len >= B::N {
                return (B::N, lengths);
            }
            match (&node.child[value.bit(node.len)], &node.child) {
                (Some(next), _) => node = next,
                (None, [None, None]) => return (node.len, lengths),
                (None, _) => return (node.len + 1, lengths),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of prefixes: lengths are right, and so they are for any value that
        /// agrees in the reported bits; emptying it leaves nothing.
        #[test]
        fn equals_a_list(
            prefixes in prop::collection::vec((0u32..64, 1u8..=32), 0..40),
            drop in 0usize..40,
            probes in prop::collection::vec((0u32..64, any::<u32>()), 1..40),
        ) {
            // Few distinct top bits and a few low ones make long shared edges and forks.
            let spread = |x: u32| (x & 0x38) << 26 | x & 7;
            let mut t = Trie::<u32>::default();
            for (v, l) in &prefixes {
                t.insert(spread(*v), *l);
            }
            let n = drop.min(prefixes.len());
            for (v, l) in &prefixes[..n] {
                t.remove(spread(*v), *l);
            }
            let lengths = |v: u32| {
                prefixes[n..].iter().filter(|(p, l)| spread(*p).top(*l) == v.top(*l))
                    .fold(0u128, |a, (_, l)| a | 1 << (l - 1))
            };
            for (v, noise) in probes {
                let v = spread(v);
                let (bits, got) = t.lookup(v);
                prop_assert_eq!(got, lengths(v));
                let other = v.top(bits) | (noise & !u32::MAX.top(bits));
                prop_assert_eq!(lengths(other), got);
            }
            for (v, l) in &prefixes[n..] {
                t.remove(spread(*v), *l);
            }
            prop_assert!(t.is_empty());
        }
    }

    #[test]
    fn bits_used_are_minimal() {
        let mut t = Trie::<u32>::default();
        assert_eq!(t.lookup(5), (0, 0));
        t.insert(0x0a000000, 8);
        // A lone leaf that covers: 8 bits. One that differs in the first bit: 1 bit.
        assert_eq!(t.lookup(0x0a010203), (8, 1 << 7));
        assert_eq!(t.lookup(0xc0000000), (1, 0));
        t.insert(0x0a010000, 16);
        assert_eq!(t.lookup(0x0a010203), (16, 1 << 7 | 1 << 15));
        // Left at the bit that differs from the longer prefix.
        assert_eq!(t.lookup(0x0a800000), (9, 1 << 7));
        t.insert(0x0a010203, 32);
        assert_eq!(t.lookup(0x0a010203), (32, 1 << 7 | 1 << 15 | 1 << 31));
    }
}
