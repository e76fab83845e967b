//! The benches of MathNeuro.
