//! Mutations that know nothing of what the bytes mean.

/// xorshift64*: small, seeded, the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn value(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// Less than `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.value() % n as u64) as usize
    }
}

/// Longest input that is made.
const MAX_LEN: usize = 70_000;
/// Values at which lengths and counts go wrong.
const EDGES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xfe, 4, 8];

/// A few random changes of `base`; `others` lend pieces.
pub fn mutate(rng: &mut Rng, base: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    let mut v = base.to_vec();
    for _ in 0..1 + rng.below(4) {
        one(rng, &mut v, others);
    }
    v.truncate(MAX_LEN);
    v
}

fn one(rng: &mut Rng, v: &mut Vec<u8>, others: &[Vec<u8>]) {
    if v.is_empty() {
        v.push(rng.value() as u8);
        return;
    }
    let at = rng.below(v.len());
    match rng.below(9) {
        0 => v[at] ^= 1 << rng.below(8),
        1 => v[at] = EDGES[rng.below(EDGES.len())],
        2 => v[at] = rng.value() as u8,
        3 => v.truncate(at),
        4 => {
            let n = 1 + rng.below(16);
            let b = rng.value() as u8;
            v.splice(at..at, std::iter::repeat_n(b, n));
        }
        5 => {
            let end = (at + 1 + rng.below(16)).min(v.len());
            v.drain(at..end);
        }
        6 => {
            let end = (at + 1 + rng.below(64)).min(v.len());
            let piece = v[at..end].to_vec();
            v.splice(at..at, piece);
        }
        7 => {
            let o = &others[rng.below(others.len())];
            if !o.is_empty() {
                let from = rng.below(o.len());
                let end = (from + 1 + rng.below(64)).min(o.len());
                v.splice(at..at, o[from..end].iter().copied());
            }
        }
        _ => {
            // A 16-bit number, big-endian: most lengths are.
            if at + 1 < v.len() {
                let n = [0u16, 1, 7, 8, 0xffff, v.len() as u16, rng.value() as u16][rng.below(7)];
                v[at..at + 2].copy_from_slice(&n.to_be_bytes());
            }
        }
    }
}
