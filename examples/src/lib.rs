//! The examples of MathNeuro.
