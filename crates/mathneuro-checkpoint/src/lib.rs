//! Hugging Face checkpoints on disk: memory-mapped, checked, safely written
