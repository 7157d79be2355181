//! Column values: sets and maps, kept sorted.

use crate::atom::Atom;
use crate::error::{Error, Result, Tag};
use crate::symbols::Symbols;
use crate::types::{ColumnType, UNLIMITED};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt;
use uuid::Uuid;

/// A set of keys, or a map when `values` is as long as `keys`. Keys are sorted and distinct.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Datum {
    keys: Vec<Atom>,
    values: Vec<Atom>,
}

impl Datum {
    pub const fn empty() -> Datum {
        Datum { keys: Vec::new(), values: Vec::new() }
    }

    pub fn scalar(a: Atom) -> Datum {
        Datum { keys: vec![a], values: Vec::new() }
    }

    /// A set; duplicates collapse.
    pub fn from_keys(keys: impl IntoIterator<Item = Atom>) -> Datum {
        let mut keys: Vec<Atom> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        Datum { keys, values: Vec::new() }
    }

    /// A map; the first of equal keys stays.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (Atom, Atom)>) -> Datum {
        let mut pairs: Vec<(Atom, Atom)> = pairs.into_iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|b, a| a.0 == b.0);
        let (keys, values) = pairs.into_iter().unzip();
        Datum { keys, values }
    }

    pub fn integer(v: i64) -> Datum {
        Datum::scalar(Atom::Integer(v))
    }
    pub fn boolean(v: bool) -> Datum {
        Datum::scalar(Atom::Boolean(v))
    }
    pub fn string(v: impl Into<String>) -> Datum {
        Datum::scalar(Atom::String(v.into()))
    }
    pub fn uuid(v: Uuid) -> Datum {
        Datum::scalar(Atom::Uuid(v))
    }
    pub fn strings<S: Into<String>>(v: impl IntoIterator<Item = S>) -> Datum {
        Datum::from_keys(v.into_iter().map(|s| Atom::String(s.into())))
    }
    pub fn uuids(v: impl IntoIterator<Item = Uuid>) -> Datum {
        Datum::from_keys(v.into_iter().map(Atom::Uuid))
    }
    pub fn string_map<K: Into<String>, V: Into<String>>(v: impl IntoIterator<Item = (K, V)>) -> Datum {
        Datum::from_pairs(v.into_iter().map(|(k, v)| (Atom::String(k.into()), Atom::String(v.into()))))
    }

    pub fn keys(&self) -> &[Atom] {
        &self.keys
    }
    /// Empty for a set.
    pub fn values(&self) -> &[Atom] {
        &self.values
    }
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    /// (key, value) pairs; the value is None for a set.
    pub fn iter(&self) -> impl Iterator<Item = (&Atom, Option<&Atom>)> {
        self.keys.iter().enumerate().map(|(i, k)| (k, self.values.get(i)))
    }
    /// The only element of a scalar or optional column.
    pub fn only(&self) -> Option<&Atom> {
        match self.keys.as_slice() {
            [a] => Some(a),
            _ => None,
        }
    }
    pub fn value_of(&self, key: &Atom) -> Option<&Atom> {
        self.keys.binary_search(key).ok().and_then(|i| self.values.get(i))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self.only() {
            Some(Atom::String(s)) => Some(s),
            _ => None,
        }
    }
    pub fn as_i64(&self) -> Option<i64> {
        match self.only() {
            Some(Atom::Integer(i)) => Some(*i),
            _ => None,
        }
    }
    pub fn as_f64(&self) -> Option<f64> {
        match self.only() {
            Some(Atom::Real(r)) => Some(r.value()),
            _ => None,
        }
    }
    pub fn as_bool(&self) -> Option<bool> {
        match self.only() {
            Some(Atom::Boolean(b)) => Some(*b),
            _ => None,
        }
    }
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self.only() {
            Some(Atom::Uuid(u)) => Some(*u),
            _ => None,
        }
    }
    /// String keys, in order; other atoms are skipped.
    pub fn str_keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter_map(|a| match a {
            Atom::String(s) => Some(s.as_str()),
            _ => None,
        })
    }
    /// Uuid keys, in order.
    pub fn uuid_keys(&self) -> impl Iterator<Item = Uuid> {
        self.keys.iter().filter_map(|a| match a {
            Atom::Uuid(u) => Some(*u),
            _ => None,
        })
    }
    pub fn i64_keys(&self) -> impl Iterator<Item = i64> {
        self.keys.iter().filter_map(|a| match a {
            Atom::Integer(u) => Some(*u),
            _ => None,
        })
    }
    /// (key, value) of a map of strings.
    pub fn str_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().zip(&self.values).filter_map(|p| match p {
            (Atom::String(k), Atom::String(v)) => Some((k.as_str(), v.as_str())),
            _ => None,
        })
    }
    /// Value of a map of strings.
    pub fn lookup(&self, key: &str) -> Option<&str> {
        let i = self
            .keys
            .binary_search_by(|a| match a {
                Atom::String(s) => s.as_str().cmp(key),
                _ => Ordering::Less,
            })
            .ok()?;
        match self.values.get(i) {
            Some(Atom::String(v)) => Some(v),
            _ => None,
        }
    }

    /// True when this is what a new row has in a column of that type.
    pub fn is_default(&self, ty: &ColumnType) -> bool {
        if ty.min == 0 {
            return self.is_empty();
        }
        self.len() == 1 && self.keys[0].is_default() && self.values.iter().all(Atom::is_default)
    }

    /// Reads a datum of type `ty` and checks counts, duplicates and constraints.
    pub fn from_json(ty: &ColumnType, json: &Value, mut symbols: Option<&mut Symbols>) -> Result<Datum> {
        let is_set = matches!(json, Value::Array(a) if a.first().is_some_and(|c| c == "set"));
        if !ty.is_map() && !is_set {
            let key = Atom::from_json(ty.key.ty, json, symbols)?;
            ty.key.check(&key)?;
            return Ok(Datum::scalar(key));
        }
        let class = if ty.is_map() { "map" } else { "set" };
        let elements = match json {
            Value::Array(a) => match a.as_slice() {
                [Value::String(c), Value::Array(inner)] if c == class => Some(inner),
                _ => None,
            },
            _ => None,
        }
        .ok_or_else(|| Error::syntax(json, format!("expected [\"{class}\", <array>]")))?;
        check_count(ty, class, elements.len()).map_err(|e| Error::syntax(json, e))?;

        let mut pairs = Vec::with_capacity(elements.len());
        for e in elements {
            let (k, v) = match &ty.value {
                None => (e, None),
                Some(vt) => match e.as_array().map(Vec::as_slice) {
                    Some([k, v]) => (k, Some((vt, v))),
                    _ => return Err(Error::syntax(e, "expected 2-element array")),
                },
            };
            let key = Atom::from_json(ty.key.ty, k, symbols.as_deref_mut())?;
            ty.key.check(&key)?;
            let value = match v {
                None => None,
                Some((vt, v)) => {
                    let value = Atom::from_json(vt.ty, v, symbols.as_deref_mut())?;
                    vt.check(&value)?;
                    Some(value)
                }
            };
            pairs.push((key, value));
        }
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        if pairs.windows(2).any(|w| w[0].0 == w[1].0) {
            let what = if ty.is_map() { "map contains duplicate key" } else { "set contains duplicate" };
            return Err(Error::new(Tag::Ovsdb, what));
        }
        let mut datum = Datum::empty();
        for (k, v) in pairs {
            datum.keys.push(k);
            datum.values.extend(v);
        }
        Ok(datum)
    }

    /// The wire form; a set of one element is that element.
    pub fn to_json(&self, ty: &ColumnType) -> Value {
        if !ty.is_map() {
            return self.to_json_as_set();
        }
        let pairs: Vec<Value> =
            self.keys.iter().zip(&self.values).map(|(k, v)| json!([k.to_json(), v.to_json()])).collect();
        json!(["map", pairs])
    }

    pub fn to_json_as_set(&self) -> Value {
        match self.keys.as_slice() {
            [one] => one.to_json(),
            many => json!(["set", many.iter().map(Atom::to_json).collect::<Vec<_>>()]),
        }
    }

    /// True if each element (pair, for maps) of `self` is in `o`.
    pub fn is_subset_of(&self, o: &Datum) -> bool {
        self.iter().all(|(k, v)| match o.keys.binary_search(k) {
            Ok(i) => v == o.values.get(i),
            Err(_) => false,
        })
    }

    /// True if no element (pair, for maps) of `self` is in `o`.
    pub fn is_disjoint_from(&self, o: &Datum) -> bool {
        self.iter().all(|(k, v)| match o.keys.binary_search(k) {
            Ok(i) => v != o.values.get(i),
            Err(_) => true,
        })
    }

    /// Adds the elements of `o`; keys that are there already keep their values.
    pub fn union(&self, o: &Datum) -> Datum {
        self.merge(o, |a, b| a.or(b).map(|p| (p.0.clone(), p.1.cloned())))
    }

    /// Removes the elements of `o`. With `o` a set, keys are removed whatever their values.
    pub fn subtract(&self, o: &Datum) -> Datum {
        let any_value = o.values.is_empty();
        self.merge(o, |a, b| match (a, b) {
            (Some(a), Some(b)) if any_value || a.1 == b.1 => None,
            (a, _) => a.map(|p| (p.0.clone(), p.1.cloned())),
        })
    }

    /// The difference that turns `self` into `new`, as it is sent and logged: for composite types the
    /// elements that are in one of the two only, with the new value where a key is in both.
    pub fn diff(&self, new: &Datum, ty: &ColumnType) -> Datum {
        if !ty.is_composite() {
            return new.clone();
        }
        self.merge(new, |a, b| match (a, b) {
            (Some(a), Some(b)) if a.1 == b.1 => None,
            (_, Some(p)) | (Some(p), None) => Some((p.0.clone(), p.1.cloned())),
            (None, None) => None,
        })
    }

    /// Undoes `diff`: `old.apply(&old.diff(&new)) == new`.
    pub fn apply_diff(&self, diff: &Datum, ty: &ColumnType) -> Datum {
        self.diff(diff, ty)
    }

    /// A set without the keys for which `keep` says no (or map pairs).
    pub fn retain(&self, keep: impl Fn(&Atom, Option<&Atom>) -> bool) -> Datum {
        let mut d = Datum::empty();
        for (k, v) in self.iter().filter(|(k, v)| keep(k, *v)) {
            d.keys.push(k.clone());
            d.values.extend(v.cloned());
        }
        d
    }

    /// Walks both in order; `pick` sees what each has under one key. Linear in both lengths.
    fn merge<'a>(
        &'a self,
        o: &'a Datum,
        pick: impl Fn(
            Option<(&'a Atom, Option<&'a Atom>)>,
            Option<(&'a Atom, Option<&'a Atom>)>,
        ) -> Option<(Atom, Option<Atom>)>,
    ) -> Datum {
        let (mut i, mut j) = (0, 0);
        let mut out = Datum::empty();
        while i < self.len() || j < o.len() {
            let order = match (self.keys.get(i), o.keys.get(j)) {
                (Some(a), Some(b)) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                _ => Ordering::Greater,
            };
            let a = (order != Ordering::Greater).then(|| (&self.keys[i], self.values.get(i)));
            let b = (order != Ordering::Less).then(|| (&o.keys[j], o.values.get(j)));
            i += usize::from(a.is_some());
            j += usize::from(b.is_some());
            if let Some((k, v)) = pick(a, b) {
                out.keys.push(k);
                out.values.extend(v);
            }
        }
        out
    }
}

/// None if `n` elements are legal, else the message.
pub(crate) fn check_count(ty: &ColumnType, class: &str, n: usize) -> std::result::Result<(), String> {
    if n >= ty.min as usize && (ty.max == UNLIMITED || n <= ty.max as usize) {
        return Ok(());
    }
    Err(if ty.min == 1 && ty.max == 1 {
        format!("{class} must have exactly one member but {n} are present")
    } else if ty.max == UNLIMITED {
        format!("{class} must have {} or more members but {n} are present", ty.min)
    } else {
        format!("{class} must have {} to {} members but {n} are present", ty.min, ty.max)
    })
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_map = !self.values.is_empty();
        if self.len() == 1 && !is_map {
            return self.keys[0].fmt(f);
        }
        f.write_str(if is_map { "{" } else { "[" })?;
        for (i, (k, v)) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{k}")?;
            if let Some(v) = v {
                write!(f, "={v}")?;
            }
        }
        f.write_str(if is_map { "}" } else { "]" })
    }
}
