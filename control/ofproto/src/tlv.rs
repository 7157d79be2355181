//! The bridge's table of tunnel options.

use std::collections::BTreeMap;
use std::sync::Arc;

use fv_flow::TunTable;
use fv_openflow::OfError;
use fv_openflow::msg::tlv::{MAX_FIELDS, MAX_OPTION_SPACE, TlvCommand, TlvMap, TlvTableMod, TlvTableReply};

/// Options by the number of their field.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct TlvTable {
    maps: BTreeMap<u16, TlvMap>,
    /// What translation reads of it.
    table: Arc<TunTable>,
}

impl TlvTable {
    /// All of the change or, with an error, nothing. Fields of `used`, a bit each, keep their options.
    pub(crate) fn change(&mut self, m: &TlvTableMod, used: impl FnOnce() -> u64) -> Result<(), OfError> {
        let mut new = self.clone();
        match m.command {
            TlvCommand::Clear => new.remove(|_| true),
            TlvCommand::Delete => new.remove(|t| m.maps.iter().any(|d| (d.class, d.kind) == (t.class, t.kind))),
            TlvCommand::Add => m.maps.iter().try_for_each(|t| new.add(*t))?,
        }
        let gone = self.maps.keys().filter(|i| !new.maps.contains_key(i)).fold(0u64, |all, i| all | 1 << i);
        if gone != 0 && gone & used() != 0 {
            return Err(OfError::NxTtmfcInvalidTlvDel);
        }
        *self = new;
        Ok(())
    }

    fn add(&mut self, t: TlvMap) -> Result<(), OfError> {
        if self.maps.contains_key(&t.index) {
            return Err(OfError::NxTtmfcAlreadyMapped);
        }
        if self.maps.values().any(|o| (o.class, o.kind) == (t.class, t.kind)) {
            return Err(OfError::NxTtmfcDupEntry);
        }
        if !Arc::make_mut(&mut self.table).add(t.class, t.kind, t.index.into(), t.len) {
            return Err(OfError::NxTtmfcTableFull);
        }
        self.maps.insert(t.index, t);
        Ok(())
    }

    fn remove(&mut self, which: impl Fn(&TlvMap) -> bool) {
        let table = Arc::make_mut(&mut self.table);
        self.maps.retain(|index, t| {
            let goes = which(t);
            if goes {
                table.remove((*index).into());
            }
            !goes
        });
    }

    pub(crate) fn table(&self) -> &Arc<TunTable> {
        &self.table
    }

    pub(crate) fn reply(&self) -> TlvTableReply {
        TlvTableReply {
            max_option_space: MAX_OPTION_SPACE,
            max_fields: MAX_FIELDS,
            maps: self.maps.values().copied().collect(),
        }
    }
}
