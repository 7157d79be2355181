//! Benches of hardware offload: `cargo xtask bench NAME`. Each ends with a line `RESULT key=value ...`.

mod plot;
mod rebalance;
#[path = "../../tests/sim/mod.rs"]
mod sim;

fn main() {
    let name = std::env::args().skip(1).find(|a| a != "--bench");
    match name.as_deref() {
        Some("rebalance") => rebalance::run(),
        _ => println!("benches: rebalance"),
    }
}
