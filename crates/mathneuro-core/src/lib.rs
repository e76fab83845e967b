//! Math Neurosurgery end to end: isolate, prune and scale the parameters that carry a skill
