//! OVSDB without I/O: schemas, values, conditions, mutations, transactions and table updates as
//! RFC 7047 and its extensions define them, in the reference's wording where programs read it.

pub mod atom;
pub mod condition;
pub mod datum;
pub mod db;
pub mod error;
pub mod exec;
pub mod logrec;
pub mod message;
pub mod monitor;
pub mod mutation;
mod parser;
pub mod schema;
pub mod symbols;
pub mod txn;
pub mod types;
pub mod vswitch;

pub use atom::{Atom, AtomicType, Real};
pub use condition::{Clause, Condition, Function};
pub use datum::Datum;
pub use db::{Commit, Database, RowChange};
pub use error::{Error, Result, Tag};
pub use exec::{Context, Outcome, transact};
pub use message::Message;
pub use parser::is_id;
pub use schema::{COL_UUID, COL_VERSION, ColumnSchema, Row, Schema, TableSchema};
pub use types::{BaseType, ColumnType, RefType};
pub use uuid::Uuid;
