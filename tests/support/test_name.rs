//! The names of tests, for a program that executes one of its own tests in another process.

/// The full name of a test function, as `--exact` expects it.
///
/// It is derived from the function, so that it exists: a name that matches no test runs nothing, and that is a success.
pub(crate) fn test_name<F: Fn()>(_: F) -> &'static str {
    let path = std::any::type_name::<F>();
    path.split_once("::").expect("the name of a function begins with its crate").1
}
