//! Device classes by type name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::device::{Device, DeviceError};

/// An interface row's `options`.
pub type Options = BTreeMap<String, String>;

/// What a factory may need to know of the daemon.
#[derive(Clone, Debug, Default)]
pub struct Env {
    /// Relative socket paths start here.
    pub rundir: PathBuf,
}

/// Opens a device by name with its options.
pub type Factory = Arc<dyn Fn(&str, &Options, &Env) -> Result<Arc<dyn Device>, DeviceError> + Send + Sync>;

/// The device classes that this switch offers. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Registry {
    classes: BTreeMap<String, Factory>,
}

impl Registry {
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Offers `kind`, in place of what was offered under that name.
    pub fn register<F>(&mut self, kind: &str, factory: F)
    where
        F: Fn(&str, &Options, &Env) -> Result<Arc<dyn Device>, DeviceError> + Send + Sync + 'static,
    {
        self.classes.insert(kind.into(), Arc::new(factory));
    }

    pub fn unregister(&mut self, kind: &str) {
        self.classes.remove(kind);
    }

    /// Makes `kind` another name of `of`.
    pub fn alias(&mut self, kind: &str, of: &str) {
        if let Some(factory) = self.classes.get(of).cloned() {
            self.classes.insert(kind.into(), factory);
        }
    }

    pub fn has(&self, kind: &str) -> bool {
        self.classes.contains_key(kind)
    }

    /// Type names in order, as `iface_types` lists them.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// Opens device `name` of type `kind` ("" is "system").
    pub fn open(&self, kind: &str, name: &str, options: &Options, env: &Env) -> Result<Arc<dyn Device>, DeviceError> {
        let kind = if kind.is_empty() { "system" } else { kind };
        let factory = self.classes.get(kind).ok_or_else(|| DeviceError::UnknownKind(kind.into()))?;
        factory(name, options, env)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_named() {
        let mut registry = Registry::new();
        registry.register("system", |name, _, _| Err(DeviceError::BadName(name.into())));
        registry.alias("", "nothing");
        let open = |kind| match registry.open(kind, "p1", &Options::new(), &Env::default()) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        assert_eq!(open("foo"), "unknown device type \"foo\"");
        assert_eq!(open(""), "p1: bad device name");
        assert_eq!(registry.kinds().collect::<Vec<_>>(), ["system"]);
    }
}
