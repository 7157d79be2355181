//! Flows of one pool and place, sorted roughly: a list for each class of values, four to an octave.
//!
//! Moving a flow costs the same however many there are, and the best and the worst are at the ends.
//! Which of two flows of a class is better is within what a swap has to gain anyway.

/// No flow.
pub const NONE: u32 = u32::MAX;
/// Values that are worth no move.
pub const IDLE: u8 = 0;
/// Values below 1, and those not known yet.
pub const LOW: u8 = 1;
const CLASSES: usize = 128;

/// The class of a value.
pub fn class_of(value: f32) -> u8 {
    if value <= 0.0 {
        return IDLE;
    }
    // Exponent and the first two bits of the mantissa.
    let class = (value.to_bits() >> 21) as i32 - (127 << 2) + 2;
    class.clamp(i32::from(LOW), CLASSES as i32 - 1) as u8
}

/// Values of the class are below this.
pub fn end_of(class: u8) -> f32 {
    match class {
        IDLE => 0.0,
        127 => f32::INFINITY,
        class => f32::from_bits(((i32::from(class) - 1 + (127 << 2)) as u32) << 21),
    }
}

/// A flow's place in a list.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    pub prev: u32,
    pub next: u32,
    pub class: u8,
}

impl Default for Links {
    fn default() -> Links {
        Links { prev: NONE, next: NONE, class: IDLE }
    }
}

/// Whoever holds the links.
pub trait Nodes {
    fn links(&mut self, node: u32) -> &mut Links;
}

pub struct Lists {
    heads: [u32; CLASSES],
    /// Bit n: class n has flows.
    filled: u128,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { heads: [NONE; CLASSES], filled: 0 }
    }
}

impl Lists {
    /// Puts a flow that is in no list at the head of its class.
    pub fn put(&mut self, nodes: &mut impl Nodes, node: u32, class: u8) {
        let head = self.heads[usize::from(class)];
        *nodes.links(node) = Links { prev: NONE, next: head, class };
        if head != NONE {
            nodes.links(head).prev = node;
        }
        self.heads[usize::from(class)] = node;
        self.filled |= 1 << class;
    }

    pub fn take(&mut self, nodes: &mut impl Nodes, node: u32) {
        let Links { prev, next, class } = *nodes.links(node);
        match prev {
            NONE => self.heads[usize::from(class)] = next,
            prev => nodes.links(prev).next = next,
        }
        if next != NONE {
            nodes.links(next).prev = prev;
        }
        if self.heads[usize::from(class)] == NONE {
            self.filled &= !(1 << class);
        }
    }

    pub fn head(&self, class: u8) -> u32 {
        self.heads[usize::from(class)]
    }

    /// The highest class with flows, of those below `end`.
    pub fn highest_below(&self, end: u8) -> Option<u8> {
        let bits = self.filled & ((1u128 << end) - 1);
        (bits != 0).then(|| 127 - bits.leading_zeros() as u8)
    }

    /// The lowest class with flows, from `start` on.
    pub fn lowest_from(&self, start: u8) -> Option<u8> {
        let bits = self.filled.checked_shr(start.into()).unwrap_or(0);
        (bits != 0).then(|| start + bits.trailing_zeros() as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Nodes for Vec<Links> {
        fn links(&mut self, node: u32) -> &mut Links {
            &mut self[node as usize]
        }
    }

    #[test]
    fn classes_are_in_the_order_of_values() {
        assert_eq!((class_of(0.0), class_of(0.01), class_of(0.99), class_of(1.0)), (IDLE, LOW, LOW, 2));
        let mut last = IDLE;
        for i in 0..4000 {
            let value = 1.01f32.powi(i);
            let class = class_of(value);
            assert!(class >= last && value < end_of(class), "{value} {class}");
            assert!(class == 2 || class == 127 || value >= end_of(class - 1), "{value} {class}");
            last = class;
        }
    }

    proptest! {
        #[test]
        fn like_a_sorted_list(steps in prop::collection::vec((0u32..20, 0u8..127), 1..200)) {
            let mut nodes = vec![Links::default(); 20];
            let mut lists = Lists::default();
            let mut twin: Vec<Option<u8>> = vec![None; 20];
            for (node, class) in steps {
                match twin[node as usize].take() {
                    Some(_) => lists.take(&mut nodes, node),
                    None => {
                        lists.put(&mut nodes, node, class);
                        twin[node as usize] = Some(class);
                    }
                }
                for class in 0..127 {
                    let (mut there, mut at) = (Vec::new(), lists.head(class));
                    while at != NONE {
                        there.push(at);
                        at = nodes[at as usize].next;
                    }
                    there.sort();
                    let expected: Vec<u32> = (0..20).filter(|n| twin[*n as usize] == Some(class)).collect();
                    prop_assert_eq!(there, expected);
                }
                prop_assert_eq!(lists.highest_below(127), twin.iter().flatten().max().copied());
                prop_assert_eq!(lists.lowest_from(0), twin.iter().flatten().min().copied());
                prop_assert_eq!(lists.lowest_from(50), twin.iter().flatten().filter(|c| **c >= 50).min().copied());
            }
        }
    }
}
