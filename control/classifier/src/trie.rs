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

/// Nodes of a chunk: what an insertion allocates at most.
const CHUNK: usize = 32;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node<B> {
    bits: B,
    /// Rules with exactly this prefix.
    rules: u32,
    child: [u32; 2],
    /// Length of the prefix from the root.
    len: u8,
}

/// Nodes by index, in chunks that never move.
pub(crate) struct Trie<B> {
    root: u32,
    chunks: Vec<Box<[Node<B>]>>,
    free: Vec<u32>,
    /// Indices that were ever used.
    n: usize,
}

impl<B> Default for Trie<B> {
    fn default() -> Self {
        Trie { root: NONE, chunks: Vec::new(), free: Vec::new(), n: 0 }
    }
}

/// Where the index of a node is written.
#[derive(Clone, Copy)]
enum Slot {
    Root,
    Child(u32, usize),
}

impl<B: Bits> Trie<B> {
    fn node(&self, i: u32) -> &Node<B> {
        &self.chunks[i as usize / CHUNK][i as usize % CHUNK]
    }

    fn node_mut(&mut self, i: u32) -> &mut Node<B> {
        &mut self.chunks[i as usize / CHUNK][i as usize % CHUNK]
    }

    fn at(&self, s: Slot) -> u32 {
        match s {
            Slot::Root => self.root,
            Slot::Child(i, side) => self.node(i).child[side],
        }
    }

    fn set(&mut self, s: Slot, i: u32) {
        match s {
            Slot::Root => self.root = i,
            Slot::Child(parent, side) => self.node_mut(parent).child[side] = i,
        }
    }

    fn make(&mut self, value: B, len: u8, rules: u32, child: [u32; 2]) -> u32 {
        let node = Node { bits: value.top(len), rules, child, len };
        if let Some(i) = self.free.pop() {
            *self.node_mut(i) = node;
            return i;
        }
        if self.n.is_multiple_of(CHUNK) {
            self.chunks.push(vec![node; CHUNK].into());
        }
        let i = self.n as u32;
        self.n += 1;
        *self.node_mut(i) = node;
        i
    }

    fn drop_node(&mut self, i: u32) {
        self.free.push(i);
        if self.root == NONE {
            *self = Trie::default();
        }
    }

    /// Counts one more rule with the first `len` (1..=N) bits of `value`.
    pub(crate) fn insert(&mut self, value: B, len: u8) {
        let mut slot = Slot::Root;
        loop {
            let i = self.at(slot);
            if i == NONE {
                let leaf = self.make(value, len, 1, [NONE; 2]);
                return self.set(slot, leaf);
            }
            let node = *self.node(i);
            let common = value.common(node.bits).min(node.len).min(len);
            if common < node.len {
                let side = node.bits.bit(common);
                let mut child = [i; 2];
                child[1 - side] = if len == common { NONE } else { self.make(value, len, 1, [NONE; 2]) };
                let fork = self.make(value, common, u32::from(len == common), child);
                return self.set(slot, fork);
            }
            if len == node.len {
                self.node_mut(i).rules += 1;
                return;
            }
            slot = Slot::Child(i, value.bit(node.len));
        }
    }

    /// Undoes one `insert`.
    pub(crate) fn remove(&mut self, value: B, len: u8) {
        let mut path = [Slot::Root; 129];
        let mut depth = 0;
        loop {
            let i = self.at(path[depth]);
            if i == NONE {
                return;
            }
            let node = *self.node(i);
            if node.len > len || value.common(node.bits) < node.len {
                return;
            }
            if node.len == len {
                self.node_mut(i).rules = node.rules.saturating_sub(1);
                break;
            }
            depth += 1;
            path[depth] = Slot::Child(i, value.bit(node.len));
        }
        // Nodes that neither count nor fork go; that may leave such a one above.
        for slot in path[..=depth].iter().rev() {
            let i = self.at(*slot);
            if i == NONE {
                continue;
            }
            let node = *self.node(i);
            if node.rules == 0 && node.child.contains(&NONE) {
                let [a, b] = node.child;
                self.set(*slot, if a == NONE { b } else { a });
                self.drop_node(i);
            }
        }
    }

    /// (bits, lengths): bit `n - 1` of `lengths` says that a prefix of length n covers `value`; any
    /// value that agrees in the first `bits` bits has the same lengths.
    pub(crate) fn lookup(&self, value: B) -> (u8, u128) {
        let mut lengths = 0u128;
        if self.root == NONE {
            return (0, 0);
        }
        let mut node = self.node(self.root);
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
            match (node.child[value.bit(node.len)], node.child) {
                (NONE, [NONE, NONE]) => return (node.len, lengths),
                (NONE, _) => return (node.len + 1, lengths),
                (next, _) => node = self.node(next),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NONE && self.n == 0
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
