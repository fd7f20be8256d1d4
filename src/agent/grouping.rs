//! Which of the tools that a model wants in one turn are used side by side.

use crate::kernel::event::Wanted;
use crate::sandbox::tools;

/// Splits calls into those that can begin now and those that wait: what only looks goes side by side, anything else alone.
pub fn split(mut calls: Vec<Wanted>) -> (Vec<Wanted>, Vec<Wanted>) {
    let looks = |call: &Wanted| {
        tools::parse(&call.tool, call.args.as_str()).map_or(true, |request| !request.writes())
    };
    let together = calls.iter().take(TOGETHER).take_while(|call| looks(call)).count().max(1);
    let rest = calls.split_off(together.min(calls.len()));
    (calls, rest)
}

/// How many calls go side by side.
const TOGETHER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::Json;

    #[test]
    fn what_only_looks_goes_side_by_side_and_the_rest_waits() {
        let read = || wanted("sandbox_read_file", r#"{"path":"a"}"#);
        let write = || wanted("sandbox_write_file", r#"{"path":"a","content":""}"#);
        assert_eq!(
            split(vec![read(), read(), write(), read()]),
            (vec![read(), read()], vec![write(), read()])
        );
        assert_eq!(split(vec![write(), read()]), (vec![write()], vec![read()]));
        assert_eq!(split(vec![write(), write()]), (vec![write()], vec![write()]));
    }

    #[test]
    fn what_cannot_be_understood_does_nothing_and_few_go_at_once() {
        let odd = || wanted("sandbox_dance", "{}");
        assert_eq!(split(vec![odd(), odd()]), (vec![odd(), odd()], vec![]));
        let (now, later) = split(vec![odd(); TOGETHER + 3]);
        assert_eq!((now.len(), later.len()), (TOGETHER, 3));
    }

    fn wanted(tool: &str, args: &str) -> Wanted {
        Wanted { tool: tool.into(), args: Json::new(args) }
    }
}
