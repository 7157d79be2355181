//! Database schemas (RFC 7047 section 3.2).

use crate::atom::AtomicType;
use crate::datum::Datum;
use crate::error::{Error, Result, Tag};
use crate::parser::{Kind, Parser, is_id};
use crate::types::{ColumnType, UNLIMITED};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use uuid::Uuid;

/// Index of `_uuid` in a row.
pub const COL_UUID: usize = 0;
/// Index of `_version` in a row.
pub const COL_VERSION: usize = 1;

/// Most tables, columns of a table that a schema may have.
pub const MAX_TABLES: usize = 4096;
pub const MAX_COLUMNS: usize = 4096;

#[derive(Clone, PartialEq, Debug)]
pub struct ColumnSchema {
    pub name: String,
    pub ty: ColumnType,
    pub mutable: bool,
    pub ephemeral: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TableSchema {
    pub name: String,
    /// `_uuid`, `_version`, then the schema's columns in order of their names.
    pub columns: Vec<ColumnSchema>,
    /// Rows of other tables are collected when nothing refers to them.
    pub is_root: bool,
    pub max_rows: u32,
    /// Each a list of column numbers whose values together are unique.
    pub indexes: Vec<Vec<usize>>,
    /// Column numbers of the columns that refer to rows.
    pub references: Vec<usize>,
    by_name: HashMap<String, usize>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    pub name: String,
    /// `x.y.z`, or empty.
    pub version: String,
    /// As written in the file; not verified.
    pub cksum: String,
    /// In order of their names.
    pub tables: Vec<TableSchema>,
    by_name: HashMap<String, usize>,
}

impl Schema {
    pub fn parse(text: &str) -> Result<Schema> {
        let json = serde_json::from_str(text)
            .map_err(|e| Error::new(Tag::Syntax, format!("schema is not valid JSON: {e}")))?;
        Schema::from_json(&json)
    }

    pub fn from_json(json: &Value) -> Result<Schema> {
        let mut p = Parser::new(json, "database schema")?;
        let name = p.required("name", Kind::ID)?.as_str().unwrap_or_default().to_owned();
        let version = p.optional("version", Kind::STRING)?.and_then(Value::as_str).unwrap_or_default().to_owned();
        if !version.is_empty() && !is_version(&version) {
            return Err(Error::syntax(json, format!("schema version \"{version}\" not in format x.y.z")));
        }
        let cksum = p.optional("cksum", Kind::STRING)?.and_then(Value::as_str).unwrap_or_default().to_owned();
        let tables = p.required("tables", Kind::OBJECT)?.as_object().into_iter().flatten();
        let mut schema = Schema { name, version, cksum, tables: Vec::new(), by_name: HashMap::new() };
        for (name, t) in tables {
            if name.starts_with('_') {
                return Err(Error::syntax(t, format!("names beginning with \"_\" are reserved: {name}")));
            }
            if !is_id(name) {
                return Err(Error::syntax(t, format!("name must be a valid id: {name}")));
            }
            if schema.tables.len() == MAX_TABLES {
                return Err(Error::new(Tag::Syntax, "too many tables"));
            }
            schema.by_name.insert(name.clone(), schema.tables.len());
            schema.tables.push(TableSchema::from_json(name, t)?);
        }
        p.finish()?;
        schema.resolve()?;
        Ok(schema)
    }

    fn resolve(&mut self) -> Result<()> {
        let Schema { tables, by_name, .. } = self;
        for t in tables.iter_mut() {
            for c in &mut t.columns {
                c.ty.resolve(&|n| by_name.get(n).copied()).map_err(|missing| {
                    let what = format!("table {} column {} refers to undefined table {missing}", t.name, c.name);
                    Error::new(Tag::Syntax, what)
                })?;
            }
            t.references = (0..t.columns.len())
                .filter(|i| matches!(t.columns[*i].ty.references(), (Some(_), _) | (_, Some(_))))
                .collect();
        }
        // Schemas from before root sets: everything is a root.
        if !tables.iter().any(|t| t.is_root) {
            tables.iter_mut().for_each(|t| t.is_root = true);
        }
        Ok(())
    }

    pub fn to_json(&self) -> Value {
        // All roots is what a schema without any isRoot means, and how it is written.
        let show_roots = !self.tables.iter().all(|t| t.is_root);
        let tables: Map<String, Value> =
            self.tables.iter().map(|t| (t.name.clone(), t.to_json(show_roots && t.is_root))).collect();
        let mut o = json!({"name": self.name, "tables": tables});
        if !self.version.is_empty() {
            o["version"] = self.version.as_str().into();
        }
        if !self.cksum.is_empty() {
            o["cksum"] = self.cksum.as_str().into();
        }
        o
    }

    pub fn table(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl TableSchema {
    fn from_json(name: &str, json: &Value) -> Result<TableSchema> {
        let mut p = Parser::new(json, format!("table schema for table {name}"))?;
        let columns = p.required("columns", Kind::OBJECT)?;
        let is_root = p.optional_bool("isRoot")?.unwrap_or(false);
        // Part of the format, used by nobody.
        p.optional_bool("mutable")?;
        let max_rows = match p.optional("maxRows", Kind::INTEGER)?.map(|v| v.as_u64().map(u32::try_from)) {
            None => UNLIMITED,
            Some(Some(Ok(n))) if n >= 1 => n,
            Some(_) => return Err(Error::syntax(json, "maxRows must be at least 1")),
        };
        let indexes = p.optional("indexes", Kind::ARRAY)?.and_then(Value::as_array).cloned().unwrap_or_default();
        p.finish()?;

        let mut table = TableSchema {
            name: name.to_owned(),
            columns: Vec::new(),
            is_root,
            max_rows,
            indexes: Vec::new(),
            references: Vec::new(),
            by_name: HashMap::new(),
        };
        for internal in ["_uuid", "_version"] {
            let ty = ColumnType::scalar(AtomicType::Uuid);
            table.push(ColumnSchema { name: internal.into(), ty, mutable: false, ephemeral: internal == "_version" });
        }
        let Some(columns) = columns.as_object().filter(|c| !c.is_empty()) else {
            return Err(Error::syntax(json, "table must have at least one column"));
        };
        if columns.len() > MAX_COLUMNS {
            return Err(Error::new(Tag::Syntax, "too many columns"));
        }
        for (name, c) in columns {
            if name.starts_with('_') {
                return Err(Error::syntax(json, format!("names beginning with \"_\" are reserved: {name}")));
            }
            if !is_id(name) {
                return Err(Error::syntax(json, format!("name must be a valid id: {name}")));
            }
            table.push(ColumnSchema::from_json(name, c)?);
        }
        for i in &indexes {
            let columns = table.column_set(i)?;
            if columns.is_empty() {
                return Err(Error::syntax(json, "index must have at least one column"));
            }
            if let Some(c) = columns.iter().map(|c| &table.columns[*c]).find(|c| c.ephemeral) {
                return Err(Error::syntax(json, format!("ephemeral columns (such as {}) may not be indexed", c.name)));
            }
            table.indexes.push(columns);
        }
        Ok(table)
    }

    fn push(&mut self, c: ColumnSchema) {
        self.by_name.insert(c.name.clone(), self.columns.len());
        self.columns.push(c);
    }

    fn to_json(&self, show_root: bool) -> Value {
        let columns: Map<String, Value> = self.columns[2..].iter().map(|c| (c.name.clone(), c.to_json())).collect();
        let mut o = json!({"columns": columns});
        if show_root {
            o["isRoot"] = true.into();
        }
        if self.max_rows != UNLIMITED {
            o["maxRows"] = self.max_rows.into();
        }
        if !self.indexes.is_empty() {
            let names = |i: &Vec<usize>| i.iter().map(|c| self.columns[*c].name.as_str()).collect::<Vec<_>>();
            o["indexes"] = self.indexes.iter().map(names).collect::<Vec<_>>().into();
        }
        o
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The column called `name`, or the error of a row or clause `about` that names it.
    pub fn column_for(&self, name: &str, about: &Value) -> Result<usize> {
        self.column(name).ok_or_else(|| {
            Error::new(Tag::UnknownColumn, format!("No column {name} in table {}.", self.name)).about(about)
        })
    }

    /// An array of distinct column names.
    pub fn column_set(&self, json: &Value) -> Result<Vec<usize>> {
        let mut set = Vec::new();
        for name in json.as_array().ok_or_else(|| Error::syntax(json, "array of distinct column names expected"))? {
            let name = name.as_str().ok_or_else(|| Error::syntax(json, "array of distinct column names expected"))?;
            let Some(c) = self.column(name) else {
                return Err(Error::syntax(json, format!("{name} is not a valid column name")));
            };
            if set.contains(&c) {
                return Err(Error::syntax(json, "array of distinct column names expected"));
            }
            set.push(c);
        }
        Ok(set)
    }

    /// What a new row starts with.
    pub fn default_row(&self, uuid: Uuid) -> Row {
        let mut row: Row = self.columns.iter().map(|c| c.ty.default_datum()).collect();
        row[COL_UUID] = Datum::uuid(uuid);
        row
    }
}

/// One datum per column of `TableSchema::columns`.
pub type Row = Vec<Datum>;

impl ColumnSchema {
    fn from_json(name: &str, json: &Value) -> Result<ColumnSchema> {
        let mut p = Parser::new(json, format!("schema for column {name}"))?;
        let mutable = p.optional_bool("mutable")?.unwrap_or(true);
        let ephemeral = p.optional_bool("ephemeral")?.unwrap_or(false);
        let ty = ColumnType::from_json(p.required("type", Kind::STRING.or(Kind::OBJECT))?)?;
        p.finish()?;
        Ok(ColumnSchema { name: name.to_owned(), ty, mutable, ephemeral })
    }

    fn to_json(&self) -> Value {
        let mut o = json!({"type": self.ty.to_json()});
        if !self.mutable {
            o["mutable"] = false.into();
        }
        if self.ephemeral {
            o["ephemeral"] = true.into();
        }
        o
    }
}

fn is_version(s: &str) -> bool {
    let parts: Vec<&str> = s.split('.').collect();
    parts.len() == 3 && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}
