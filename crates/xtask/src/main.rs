//! Set-up, tests, models and demo of this workspace.

fn main() {}
