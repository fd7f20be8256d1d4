//! Which tool calls of one turn run in parallel.

use crate::kernel::event::PendingCall;
use crate::tools::ToolSet;

/// Returns how many of the calls can start now: read-only calls run in parallel, any other call runs alone.
pub fn parallel_count<'a>(calls: impl Iterator<Item = &'a PendingCall>, tools: &ToolSet) -> usize {
    let looks =
        |call: &&PendingCall| tools.parse(&call.tool, call.args.as_str()).map_or(true, |request| !request.writes());
    calls.take(MAX_PARALLEL_CALLS).take_while(looks).count().max(1)
}

/// The maximum number of parallel calls.
const MAX_PARALLEL_CALLS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::Json;

    #[test]
    fn read_only_calls_run_in_parallel_and_the_rest_wait() {
        let read = || pending_call("sandbox_read_file", r#"{"path":"a"}"#);
        let write = || pending_call("sandbox_write_file", r#"{"path":"a","content":""}"#);
        let tools = ToolSet::builtin();
        assert_eq!(parallel_count([read(), read(), write(), read()].iter(), &tools), 2);
        assert_eq!(parallel_count([write(), read()].iter(), &tools), 1);
        assert_eq!(parallel_count([write(), write()].iter(), &tools), 1);
    }

    #[test]
    fn unparseable_calls_count_as_read_only_and_parallelism_is_bounded() {
        let odd = || pending_call("sandbox_dance", "{}");
        let tools = ToolSet::builtin();
        assert_eq!(parallel_count([odd(), odd()].iter(), &tools), 2);
        assert_eq!(parallel_count(vec![odd(); MAX_PARALLEL_CALLS + 3].iter(), &tools), MAX_PARALLEL_CALLS);
    }

    fn pending_call(tool: &str, args: &str) -> PendingCall {
        PendingCall { tool: tool.into(), args: Json::new(args) }
    }
}
