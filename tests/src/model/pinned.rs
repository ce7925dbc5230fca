//! What the model found, kept.
