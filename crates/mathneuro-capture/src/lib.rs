//! Decoder models on libtorch with hook points, and the activation-norm recorder
