//! The bridge's table of tunnel options.

use std::collections::BTreeMap;

use fv_openflow::OfError;
use fv_openflow::msg::tlv::{MAX_FIELDS, MAX_OPTION_SPACE, TlvCommand, TlvMap, TlvTableMod, TlvTableReply};

/// Options by the number of their field.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct TlvTable(BTreeMap<u16, TlvMap>);

impl TlvTable {
    /// All of the change or, with an error, nothing.
    pub(crate) fn change(&mut self, m: &TlvTableMod) -> Result<(), OfError> {
        let mut new = self.clone();
        match m.command {
            TlvCommand::Clear => new.0.clear(),
            TlvCommand::Delete => {
                new.0.retain(|_, t| !m.maps.iter().any(|d| (d.class, d.kind) == (t.class, t.kind)));
            }
            TlvCommand::Add => m.maps.iter().try_for_each(|t| new.add(*t))?,
        }
        *self = new;
        Ok(())
    }

    fn add(&mut self, t: TlvMap) -> Result<(), OfError> {
        if self.0.contains_key(&t.index) {
            return Err(OfError::NxTtmfcAlreadyMapped);
        }
        if self.0.values().any(|o| (o.class, o.kind) == (t.class, t.kind)) {
            return Err(OfError::NxTtmfcDupEntry);
        }
        let used: u32 = self.0.values().map(|o| u32::from(o.len)).sum();
        if used + u32::from(t.len) > MAX_OPTION_SPACE {
            return Err(OfError::NxTtmfcTableFull);
        }
        self.0.insert(t.index, t);
        Ok(())
    }

    pub(crate) fn reply(&self) -> TlvTableReply {
        TlvTableReply {
            max_option_space: MAX_OPTION_SPACE,
            max_fields: MAX_FIELDS,
            maps: self.0.values().copied().collect(),
        }
    }
}
