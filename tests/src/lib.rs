//! The tests of MathNeuro.
