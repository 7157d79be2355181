//! Mutations (RFC 7047 section 5.1, `<mutation>`).

use crate::atom::{Atom, AtomicType, Real};
use crate::datum::{Datum, check_count};
use crate::error::{Error, Result, Tag};
use crate::schema::{ColumnSchema, TableSchema};
use crate::symbols::Symbols;
use crate::types::{Constraint, UNLIMITED};
use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Insert,
    Delete,
}

impl Mutator {
    const ALL: [Mutator; 7] =
        [Mutator::Add, Mutator::Sub, Mutator::Mul, Mutator::Div, Mutator::Mod, Mutator::Insert, Mutator::Delete];

    pub fn as_str(self) -> &'static str {
        match self {
            Mutator::Add => "+=",
            Mutator::Sub => "-=",
            Mutator::Mul => "*=",
            Mutator::Div => "/=",
            Mutator::Mod => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        }
    }

    pub fn parse(s: &str) -> Result<Mutator> {
        Self::ALL
            .into_iter()
            .find(|m| m.as_str() == s)
            .ok_or_else(|| Error::new(Tag::UnknownMutator, format!("No mutator named {s}.")))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Mutation {
    pub column: usize,
    pub mutator: Mutator,
    pub arg: Datum,
}

impl Mutation {
    pub fn from_json(table: &TableSchema, json: &Value, symbols: &mut Symbols) -> Result<Mutation> {
        let Some([Value::String(column), Value::String(mutator), arg]) = json.as_array().map(Vec::as_slice) else {
            return Err(Error::syntax(json, "Parse error in mutation."));
        };
        let column = table.column_for(column, json)?;
        let c = &table.columns[column];
        if !c.mutable {
            let what = format!("Cannot mutate immutable column {} in table {}.", c.name, table.name);
            return Err(Error::constraint(what).about(json));
        }
        let mutator = Mutator::parse(mutator)?;
        let arg = Self::arg_from_json(c, mutator, json, arg, symbols)?;
        Ok(Mutation { column, mutator, arg })
    }

    fn arg_from_json(c: &ColumnSchema, m: Mutator, json: &Value, arg: &Value, symbols: &mut Symbols) -> Result<Datum> {
        let mismatch = || {
            let what = format!(
                "Type mismatch: \"{}\" operator may not be applied to column {} of type {}.",
                m.as_str(),
                c.name,
                c.ty.to_english()
            );
            Err(Error::syntax(json, what))
        };
        let mut ty = c.ty.clone();
        match m {
            Mutator::Insert | Mutator::Delete => {
                if !ty.is_set() && !ty.is_map() {
                    return mismatch();
                }
                ty.min = 0;
                if m == Mutator::Insert {
                    return Datum::from_json(&ty, arg, Some(symbols));
                }
                ty.max = UNLIMITED;
                let is_map = matches!(arg, Value::Array(a) if a.first().is_some_and(|c| c == "map"));
                if !is_map {
                    ty.value = None;
                }
                Datum::from_json(&ty, arg, Some(symbols))
            }
            _ => {
                let number = matches!(ty.key.ty, AtomicType::Integer | AtomicType::Real);
                if !number || ty.is_map() || (m == Mutator::Mod && ty.key.ty == AtomicType::Real) {
                    return mismatch();
                }
                ty.key.constraint = Constraint::None;
                ty.min = 1;
                ty.max = 1;
                Datum::from_json(&ty, arg, Some(symbols))
            }
        }
    }

    /// The new value of the column. Its count and constraints are checked.
    pub fn apply(&self, c: &ColumnSchema, old: &Datum) -> Result<Datum> {
        let new = match self.mutator {
            Mutator::Insert => old.union(&self.arg),
            Mutator::Delete => old.subtract(&self.arg),
            _ => return self.arithmetic(c, old),
        };
        let class = if c.ty.is_map() { "map" } else { "set" };
        if check_count(&c.ty, class, new.len()).is_err() {
            let what = format!("Attempted to store {} elements in {}.", new.len(), c.ty.to_english());
            return Err(Error::constraint(what));
        }
        Ok(new)
    }

    fn arithmetic(&self, c: &ColumnSchema, old: &Datum) -> Result<Datum> {
        let Some(arg) = self.arg.only() else { return Ok(old.clone()) };
        let mut keys = Vec::with_capacity(old.len());
        for k in old.keys() {
            let new = self.number(k, arg)?;
            c.ty.key.check(&new)?;
            keys.push(new);
        }
        let n = keys.len();
        let new = Datum::from_keys(keys);
        if new.len() < n {
            let what = format!("Result of \"{}\" operation contains duplicates.", self.mutator.as_str());
            return Err(Error::constraint(what));
        }
        Ok(new)
    }

    fn number(&self, a: &Atom, b: &Atom) -> Result<Atom> {
        let zero = || Err(Error::new(Tag::Domain, "Division by zero."));
        let result = match (a, b) {
            (Atom::Integer(a), Atom::Integer(b)) => match self.mutator {
                Mutator::Add => a.checked_add(*b),
                Mutator::Sub => a.checked_sub(*b),
                Mutator::Mul => a.checked_mul(*b),
                Mutator::Div | Mutator::Mod if *b == 0 => return zero(),
                Mutator::Div => a.checked_div(*b),
                // The remainder of MIN by -1 is 0, though the division overflows.
                _ => Some(a.wrapping_rem(*b)),
            }
            .map(Atom::Integer),
            (Atom::Real(a), Atom::Real(b)) => {
                let (a, b) = (a.value(), b.value());
                let r = match self.mutator {
                    Mutator::Add => a + b,
                    Mutator::Sub => a - b,
                    Mutator::Mul => a * b,
                    _ if b == 0.0 => return zero(),
                    _ => a / b,
                };
                Real::new(r).map(Atom::Real)
            }
            _ => None,
        };
        result.ok_or_else(|| {
            Error::new(Tag::Range, format!("Result of \"{}\" operation is out of range.", self.mutator.as_str()))
        })
    }
}
