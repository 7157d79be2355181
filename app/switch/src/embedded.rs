//! Which database: a server's, or our own.

use fv_core::Clock;
use fv_rpc::Tls;

use crate::options::SwitchOptions;
use crate::run::Error;

/// The database server inside this process.
pub struct Embedded;

/// The remote to be a client of, and the server to run for it.
pub fn choose(opts: &SwitchOptions, _clock: &Clock, _tls: &Tls) -> Result<(String, Option<Embedded>), Error> {
    let remote = opts.database.clone().unwrap_or_else(|| format!("unix:{}", opts.rundir.join("db.sock").display()));
    Ok((remote, None))
}
