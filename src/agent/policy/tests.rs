//! What is decided about calls, case by case.
