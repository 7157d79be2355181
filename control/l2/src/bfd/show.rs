//! What `bfd/show` and the `bfd_status` column say.

use std::fmt::Write;

use fv_core::Nanos;

use super::Session;
use super::packet::{FLAG_POLL, flags_text};

impl Session {
    /// The text of `bfd/show` for one session.
    pub fn show(&self, now: Nanos) -> String {
        let mut s = String::new();
        let relative = |at: Nanos| format!("now {:+}ms", at.ms() as i64 - now.ms() as i64);
        let ms = |us: u32| us / 1000;
        let r = &self.remote;
        let _ = write!(
            s,
            "  Forwarding: {}\n  Detect Multiplier: {}\n  Concatenated Path Down: {}\n  TX Interval: Approx {}ms\n  \
             RX Interval: Approx {}ms\n  Detect Time: {}\n  Next TX Time: {}\n  Last TX Time: {}\n\n",
            self.forwarding,
            self.config.mult,
            self.config.cpath_down,
            ms(self.tx_interval_us()),
            ms(self.rx_interval_us()),
            relative(self.detect_at),
            relative(self.next_tx),
            relative(self.last_tx),
        );
        let _ = write!(
            s,
            "  Local Flags: {}\n  Local Session State: {}\n  Local Diagnostic: {}\n  Local Discriminator: {:#x}\n  \
             Local Minimum TX Interval: {}ms\n  Local Minimum RX Interval: {}ms\n\n",
            flags_text(if self.polling { FLAG_POLL } else { 0 }),
            self.state,
            self.diagnostic,
            self.discriminator,
            ms(self.min_tx_us),
            ms(self.min_rx_us),
        );
        let _ = write!(
            s,
            "  Remote Flags: {}\n  Remote Session State: {}\n  Remote Diagnostic: {}\n  Remote Discriminator: {:#x}\n  \
             Remote Minimum TX Interval: {}ms\n  Remote Minimum RX Interval: {}ms\n  Remote Detect Multiplier: {}\n",
            flags_text(r.flags),
            r.state,
            r.diagnostic,
            r.discriminator,
            ms(r.min_tx_us),
            ms(r.min_rx_us),
            r.mult,
        );
        s
    }

    /// The `bfd_status` column.
    pub fn status(&self) -> [(&'static str, String); 6] {
        [
            ("forwarding", self.forwarding.to_string()),
            ("state", self.state.to_string()),
            ("diagnostic", self.diagnostic.to_string()),
            ("remote_state", self.remote.state.to_string()),
            ("remote_diagnostic", self.remote.diagnostic.to_string()),
            ("flap_count", self.flaps.to_string()),
        ]
    }
}
