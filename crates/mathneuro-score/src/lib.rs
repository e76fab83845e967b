//! Activation norms, importance scores and exact top-K selection into parameter masks
