//! Prune and scale the masked parameters of slices and checkpoints
