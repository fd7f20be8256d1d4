//! Failing files.
