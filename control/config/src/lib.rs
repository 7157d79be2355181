//! Configuration: database replica -> desired -> plan -> apply -> report.
//!
//! [`desired()`] reads the replica into plain, legal specifications and says what was wrong with the
//! rest. [`plan()`] compares them with what runs and lists steps, printably. [`apply()`] carries the steps
//! out through [`Targets`], which the application implements. [`mod@report`] is the only writer of status.

pub mod apply;
pub mod desired;
pub mod plan;
pub mod pmd;
pub mod report;
pub mod spec;

pub use apply::{Applied, Targets, apply};
pub use desired::desired;
pub use plan::{Plan, Step, plan};
pub use pmd::{PmdSpec, RxqAssign};
pub use spec::{BridgeSpec, ControllerSpec, Desired, FailMode, Globals, IfaceSpec, PortSpec, PriorityTags, VlanMode};
