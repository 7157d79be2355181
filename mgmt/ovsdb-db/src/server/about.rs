//! The `_Server` database: one row for each database that is served, itself included.

use fv_ovsdb::{Context, Database, Outcome, Schema, Uuid, transact, vswitch};
use serde_json::{Value, json};

pub(super) fn server_database(schemas: &[&Schema]) -> Database {
    let about = vswitch::server_schema();
    let mut db = Database::new(about.clone());
    let insert = |s: &&Schema| {
        json!({"op": "insert", "table": "Database", "row": {
            "name": s.name, "model": "standalone", "connected": true, "leader": true,
            "schema": s.to_json().to_string()
        }})
    };
    let ops: Vec<Value> = schemas.iter().chain([&&*about]).map(insert).collect();
    let ctx = Context { elapsed_ms: 0, read_only: false, owns_lock: &|_| false };
    if let Outcome::Done { commit: Some(c), .. } = transact(&db, &ops, &ctx, &mut Uuid::new_v4) {
        db.apply(&c);
    }
    db
}
