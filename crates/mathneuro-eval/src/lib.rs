//! Tasks, generation, log-likelihood, graders and intervals
