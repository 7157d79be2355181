//! OpenFlow's classifier: priorities, versions, tuple space with staged lookup and prefix tries.
//!
//! One subtable per mask, visited by descending priority. A lookup that collects a mask
//! ([`Classifier::lookup`]) adds only the bits that decided: a subtable is searched in up to four
//! stages (metadata, L2, L3, L4) and left at the first stage no rule agrees with; prefix tries tell
//! how many bits of an address rule a subtable out.
//!
//! Rules may be parts of conjunctive matches ([`Conjunction`]).
//!
//! Rules carry `[added, removed)` versions. Inserting and removing change nothing for lookups at
//! versions that are in use, so that many changes become visible by one store of the caller's
//! current version. Lookups run on any thread and never wait for the writer: tables are arrays of
//! atomics, and a prefix trie that is being changed is passed over, which costs a narrower mask.

mod classifier;
mod conjunction;
#[cfg(test)]
mod linear;
mod mini;
mod prefix;
mod rule;
mod stage;
mod subtable;
mod table;
#[cfg(test)]
mod tests;
mod trie;

pub use classifier::Classifier;
pub use mini::{MiniMask, MiniMatch};
pub use prefix::{DEFAULT_PREFIXES, MAX_PREFIXES, PrefixField};
pub use rule::{ClsRule, Conjunction, Version};
