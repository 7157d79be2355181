//! The schemas that the switch serves.

use crate::schema::Schema;
use std::sync::{Arc, OnceLock};

/// Open_vSwitch, as text.
pub const VSWITCH_SCHEMA: &str = include_str!("vswitch.ovsschema");
/// _Server, which describes the databases of a server, as text.
pub const SERVER_SCHEMA: &str = include_str!("_server.ovsschema");

fn builtin(cell: &'static OnceLock<Arc<Schema>>, text: &str) -> Arc<Schema> {
    // A constant of the program, which a test parses.
    cell.get_or_init(|| Arc::new(Schema::parse(text).expect("built-in schema is legal"))).clone()
}

/// The switch's configuration database.
pub fn vswitch_schema() -> Arc<Schema> {
    static S: OnceLock<Arc<Schema>> = OnceLock::new();
    builtin(&S, VSWITCH_SCHEMA)
}

/// The server's database about itself.
pub fn server_schema() -> Arc<Schema> {
    static S: OnceLock<Arc<Schema>> = OnceLock::new();
    builtin(&S, SERVER_SCHEMA)
}
