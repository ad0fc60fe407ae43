//! The functions of llguidance.h.
pub use llguidance::ffi;
