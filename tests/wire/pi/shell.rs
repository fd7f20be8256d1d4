//! Section 17.2, bash, and the circuit breaker of section 21.

transcripts! {
    bash_responds_when_the_command_has_ended => r#"
        > create_session @s
        ok
        > bash @s {"command":"echo hello; echo oops >&2; exit 3"}
        ok {"data":{"exitCode":3,"output":"$~hello","cancelled":false},"sessionVersion":1}
    "#

    bash_is_reported_as_a_tool_and_stored_as_a_message => r#"
        > create_session @s
        ok
        > bash @s {"command":"echo hello"}
        ok
        ev tool_execution_start @s {"toolCallId":"$call","toolName":"sandbox_exec","args":{"command":"echo hello"}}
        ev tool_execution_end @s {"toolCallId":"$call","isError":false}
        ev message_end @s {"message":{"role":"bashExecution","command":"echo hello","output":"hello\n","exitCode":0,"cancelled":false}}
        > get_messages @s
        ok {"data":{"messages":[{"role":"bashExecution","excludeFromContext":"$none"}]}}
    "#

    bash_output_is_sent_to_the_model => r#"
        model "seen"
        > create_session @s
        ok
        > bash @s {"command":"echo from-the-shell"}
        ok
        > prompt @s {"message":"what was it?"}
        ok
        ev agent_end @s
        request 0 {"messages":["$has",{"role":"user","content":"$~exited with 0]\nfrom-the-shell"}]}
    "#

    bash_output_is_excluded_from_the_context_on_request => r#"
        model "not seen"
        > create_session @s
        ok
        > bash @s {"command":"echo a-secret-thing","excludeFromContext":true}
        ok {"data":{"output":"a-secret-thing\n"}}
        > get_messages @s
        ok {"data":{"messages":[{"role":"bashExecution","excludeFromContext":true}]}}
        > prompt @s {"message":"hello"}
        ok
        ev agent_end @s
        request 0 {"messages":[{"role":"system"},{"role":"user","content":"hello"}]}
    "#

    bash_runs_concurrently_with_a_run => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ touch here; until [ -e go ]; do sleep 0.01; done"}
        ok
        until here
        > bash @s {"command":"touch go; echo beside"}
        ok {"data":{"output":"beside\n"}}
        ev agent_end @s
    "#

    abort_bash_stops_the_command => r#"
        > create_session @s
        ok
        > bash @s #b {"command":"echo begun; touch here; until [ -e never ]; do sleep 0.01; done"}
        until here
        > abort_bash @s #a
        ok #a {"data":"$none"}
        ok #b {"data":{"exitCode":null,"output":"$~begun","cancelled":true}}
        > get_state @s
        ok {"sessionVersion":2}
        > get_messages @s
        ok {"data":{"messages":[{"role":"bashExecution","cancelled":true}]}}
    "#

    abort_bash_with_nothing_to_do_succeeds => r#"
        > create_session @s
        ok
        > abort_bash @s
        ok {"sessionVersion":1}
        > abort_bash @nobody
        no Session nobody not found
    "#

    bash_refuses_an_invalid_command => r#"
        > create_session @s
        ok
        >! bash @s
        no Validation failed: command: must be a string and is missing
        >! bash @s {"command":" "}
        no Validation failed: command: must not be empty
        >! bash @s {"command":"true","excludeFromContext":"yes"}
        no Validation failed: excludeFromContext: must be true or false
        > bash @nobody {"command":"true"}
        no Session nobody not found
    "#

    repeated_timeouts_open_the_circuit_of_bash => r#"
        env PUSH_PI_COMMAND_SECONDS=1
        > create_session @s
        ok
        > create_session @t
        ok
        > bash @s #1 {"command":"until [ -e never ]; do sleep 0.01; done"}
        no Command 'bash' timed out after 1000ms
        > bash @s #2 {"command":"until [ -e never ]; do sleep 0.01; done"}
        no Command 'bash' timed out after 1000ms
        > bash @s #3 {"command":"until [ -e never ]; do sleep 0.01; done"}
        no Command 'bash' timed out after 1000ms
        > bash @s #4 {"command":"touch ran"}
        no Bash circuit breaker open
        > health_check
        ok {"data":{"healthy":false,"issues":["$_"],"hasOpenCircuit":false,"hasOpenBashCircuit":true}}
        > get_metrics
        ok {"data":{"bashCircuitBreaker":{"globalState":"open","openSessionCount":1,"totalCalls":3,"totalTimeouts":3,"totalRejected":1}}}
        > delete_session @s
        ok
        > health_check #well
        ok {"data":{"healthy":true,"hasOpenBashCircuit":false}}
    "#

    a_command_that_ends_in_time_keeps_the_circuit_closed => r#"
        env PUSH_PI_COMMAND_SECONDS=2
        > create_session @s
        ok
        > bash @s #1 {"command":"until [ -e never ]; do sleep 0.01; done"}
        no Command 'bash' timed out after 2000ms
        > bash @s #2 {"command":"until [ -e never ]; do sleep 0.01; done"}
        no Command 'bash' timed out after 2000ms
        > bash @s #3 {"command":"exit 1"}
        ok {"data":{"exitCode":1}}
        > bash @s #4 {"command":"until [ -e never ]; do sleep 0.01; done"}
        no Command 'bash' timed out after 2000ms
        > bash @s #5 {"command":"true"}
        ok
    "#
}
