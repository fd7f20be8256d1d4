//! Lines as they are read.
