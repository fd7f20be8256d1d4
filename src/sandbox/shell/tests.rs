//! What the grammar takes and what it refuses.
