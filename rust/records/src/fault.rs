//! A refusal of bytes: what is wrong with them, and where.

use std::borrow::Cow;

pub type Reason = Cow<'static, str>;

/// A refusal of bytes: a short stable reason and the byte where it was found.
#[derive(Debug)]
pub struct Fault {
    pub reason: Reason,
    pub position: usize,
    pub too_large: bool,
}

impl Fault {
    pub fn new(reason: impl Into<Reason>, position: usize) -> Self {
        Self {
            reason: reason.into(),
            position,
            too_large: false,
        }
    }

    pub fn too_large(position: usize) -> Self {
        Self {
            reason: "output too large".into(),
            position,
            too_large: true,
        }
    }
}
