//! Which tool calls of one turn run in parallel.

use crate::kernel::event::Wanted;
use crate::tools;

/// Returns how many of the calls can start now: read-only calls run in parallel, any other call runs alone.
pub fn together<'a>(calls: impl Iterator<Item = &'a Wanted>) -> usize {
    let looks = |call: &&Wanted| {
        tools::parse(&call.tool, call.args.as_str()).map_or(true, |request| !request.writes())
    };
    calls.take(TOGETHER).take_while(looks).count().max(1)
}

/// The maximum number of parallel calls.
const TOGETHER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::Json;

    #[test]
    fn what_only_looks_goes_side_by_side_and_the_rest_waits() {
        let read = || wanted("sandbox_read_file", r#"{"path":"a"}"#);
        let write = || wanted("sandbox_write_file", r#"{"path":"a","content":""}"#);
        assert_eq!(together([read(), read(), write(), read()].iter()), 2);
        assert_eq!(together([write(), read()].iter()), 1);
        assert_eq!(together([write(), write()].iter()), 1);
    }

    #[test]
    fn what_cannot_be_understood_does_nothing_and_few_go_at_once() {
        let odd = || wanted("sandbox_dance", "{}");
        assert_eq!(together([odd(), odd()].iter()), 2);
        assert_eq!(together(vec![odd(); TOGETHER + 3].iter()), TOGETHER);
    }

    fn wanted(tool: &str, args: &str) -> Wanted {
        Wanted { tool: tool.into(), args: Json::new(args) }
    }
}
