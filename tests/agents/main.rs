//! Runs of models: a scripted model server, real tools, real repositories and real projects.

#[path = "../support/mod.rs"]
mod support;

mod model_runs;
mod projects;
mod providers;
mod session_features;
mod tools;
