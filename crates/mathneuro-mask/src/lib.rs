//! Bit-packed parameter masks and their set algebra
