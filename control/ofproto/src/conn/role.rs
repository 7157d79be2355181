//! Controller roles.

use fv_openflow::OfError;
use fv_openflow::msg::session::RoleStatus;
use fv_openflow::msg::{Body, Role, RoleMsg};

use super::{ConnId, Connection, Conns};

impl Conns {
    /// Answers a role request of `c`, which is not in the set meanwhile. The primary that it
    /// replaces, if any, becomes secondary.
    pub(crate) fn request_role(&mut self, c: &mut Connection, r: &RoleMsg) -> Result<RoleMsg, OfError> {
        if r.role != Role::NoChange {
            if matches!(r.role, Role::Primary | Role::Secondary)
                && let Some(g) = r.generation_id
            {
                // Distance in a circle: an older election's winner comes too late.
                if self.generation.is_some_and(|old| (g.wrapping_sub(old) as i64) < 0) {
                    return Err(OfError::RrfcStale);
                }
                self.generation = Some(g);
            }
            if r.role == Role::Primary {
                self.demote_others(c.id);
            }
            c.role = r.role;
        }
        Ok(RoleMsg { role: c.role, generation_id: self.generation })
    }

    fn demote_others(&mut self, but: ConnId) {
        let generation_id = self.generation;
        for o in self.iter_mut().filter(|o| o.id != but && o.role == Role::Primary) {
            o.role = Role::Secondary;
            if o.wants(|m| m.role_status, 0) {
                o.send_async(Body::RoleStatus(RoleStatus { role: Role::Secondary, reason: 0, generation_id }));
            }
        }
    }
}
