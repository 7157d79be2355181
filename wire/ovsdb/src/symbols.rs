//! The names of one transaction's new rows (`uuid-name` and `named-uuid`).

use std::collections::HashMap;
use uuid::Uuid;

/// Where new uuids come from: random in the server, counted in tests.
pub type UuidSource<'a> = &'a mut dyn FnMut() -> Uuid;

/// Name -> uuid. A name may be used before the insert that declares it; one that is never declared
/// names a row that does not exist.
pub struct Symbols<'a> {
    names: HashMap<String, (Uuid, bool)>,
    fresh: UuidSource<'a>,
}

impl<'a> Symbols<'a> {
    pub fn new(fresh: UuidSource<'a>) -> Symbols<'a> {
        Symbols { names: HashMap::new(), fresh }
    }

    pub fn fresh(&mut self) -> Uuid {
        (self.fresh)()
    }

    /// The uuid behind a `named-uuid`.
    pub fn refer(&mut self, name: &str) -> Uuid {
        if let Some((u, _)) = self.names.get(name) {
            return *u;
        }
        let u = (self.fresh)();
        self.names.insert(name.to_owned(), (u, false));
        u
    }

    /// Declares `name` as the row of this insert; None if an earlier insert has it. `want` fixes the
    /// uuid of a name that nobody has used yet.
    pub fn declare(&mut self, name: &str, want: Option<Uuid>) -> Option<Uuid> {
        if let Some((u, declared)) = self.names.get_mut(name) {
            return (!std::mem::replace(declared, true)).then_some(*u);
        }
        let u = want.unwrap_or_else(|| (self.fresh)());
        self.names.insert(name.to_owned(), (u, true));
        Some(u)
    }
}
