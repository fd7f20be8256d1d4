//! Section 7: admission, the order of phases, lanes, and the order of lines.

transcripts! {
    an_admitted_command_is_accepted_started_finished_and_answered => r#"
        > create_session @s #c
        ok
        << {"type":"server_ready"}
        << {"type":"command_accepted","data":{"commandId":"c"}}
        << {"type":"command_started","data":{"commandId":"c"}}
        << {"type":"command_finished","data":{"commandId":"c","success":true}}
        > health_check
        ok
        count 1 {"type":"command_accepted","data":{"commandId":"c"}}
        count 1 {"type":"command_started","data":{"commandId":"c"}}
        count 1 {"type":"command_finished","data":{"commandId":"c"}}
    "#

    a_session_is_announced_after_the_response_to_its_creation => r#"
        > create_session @s #c
        << {"type":"command_finished","data":{"commandId":"c"}}
        << {"type":"response","id":"c"}
        << {"type":"session_created","data":{"sessionId":"s","sessionInfo":{"sessionId":"s","isStreaming":false,"messageCount":0}}}
    "#

    a_deletion_is_announced_after_its_response => r#"
        > create_session @s
        ok
        > delete_session @s #d
        << {"type":"command_finished","data":{"commandId":"d","success":true,"sessionVersion":"$none"}}
        << {"type":"response","id":"d","success":true,"data":{"deleted":true},"sessionVersion":"$none"}
        << {"type":"session_deleted","data":{"sessionId":"s"}}
    "#

    a_command_that_fails_is_finished_once => r#"
        > create_session @s
        ok
        > create_session @s #again
        no Session s already exists
        count 1 {"type":"command_finished","data":{"commandId":"again","success":false,"error":"Session s already exists"}}
        count 1 {"type":"command_started","data":{"commandId":"again"}}
    "#

    a_refused_command_has_no_lifecycle => r#"
        >! prompt @s #p
        no Validation failed: message: must be a string and is missing
        > health_check
        ok
        never {"type":"command_accepted","data":{"commandId":"p"}}
        never {"type":"command_finished","data":{"commandId":"p"}}
    "#

    commands_of_one_lane_run_one_after_the_other => r#"
        > create_session @s
        ok
        > bash @s #one {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > set_session_name @s #two {"name":"second"}
        > set_session_name @s #three {"name":"third"}
        < {"type":"command_accepted","data":{"commandId":"three"}}
        > health_check
        ok
        never {"type":"command_started","data":{"commandId":"two"}}
        touch go
        ok #one {"sessionVersion":1}
        ok #two {"sessionVersion":2}
        ok #three {"sessionVersion":3}
        << {"type":"command_finished","data":{"commandId":"one"}}
        << {"type":"command_started","data":{"commandId":"two"}}
        << {"type":"command_finished","data":{"commandId":"two"}}
        << {"type":"command_started","data":{"commandId":"three"}}
        > get_state @s
        ok {"data":{"sessionName":"third"}}
    "#

    lanes_do_not_wait_for_each_other => r#"
        > create_session @s
        ok
        > create_session @t
        ok
        > bash @s #slow {"command":"until [ -e go ]; do sleep 0.01; done"}
        > set_session_name @t #quick {"name":"n"}
        ok #quick
        never {"type":"command_finished","data":{"commandId":"slow"}}
        > create_session #third
        ok #third
        never {"type":"command_finished","data":{"commandId":"slow"}}
        touch go
        ok #slow
    "#

    creation_and_deletion_wait_in_the_session_s_lane => r#"
        > create_session @s #one
        > set_session_name @s #two {"name":"n"}
        > delete_session @s #three
        > create_session @s #four
        ok #one
        ok #two {"sessionVersion":1}
        ok #three
        ok #four {"data":{"sessionInfo":{"sessionName":"$none"}},"sessionVersion":0}
        << {"type":"command_started","data":{"commandId":"one"}}
        << {"type":"command_started","data":{"commandId":"two"}}
        << {"type":"command_started","data":{"commandId":"three"}}
        << {"type":"command_started","data":{"commandId":"four"}}
    "#

    reads_overtake_a_running_command => r#"
        > create_session @s
        ok
        > bash @s #slow {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > get_state @s #a
        ok #a
        > get_messages @s #b
        ok #b
        > list_sessions #c
        ok #c
        > switch_session @s #d
        ok #d
        never {"type":"command_finished","data":{"commandId":"slow"}}
        touch go
        ok #slow
    "#

    an_abort_overtakes_a_running_command => r#"
        > create_session @s
        ok
        > bash @s #slow {"command":"touch here; until [ -e never ]; do sleep 0.01; done"}
        until here
        > set_session_name @s #waits {"name":"n"}
        > abort_bash @s #stop
        ok #stop
        ok #slow {"data":{"cancelled":true}}
        ok #waits
        << {"type":"command_finished","data":{"commandId":"stop"}}
    "#

    a_prompt_frees_its_lane_while_the_run_continues => r#"
        > create_session @s
        ok
        > prompt @s #p {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok #p {"sessionVersion":1}
        ev agent_start @s
        > set_session_name @s #name {"name":"n"}
        ok #name {"sessionVersion":2}
        > get_state @s
        ok {"data":{"isStreaming":true,"sessionName":"n"}}
        never {"type":"event","event":{"type":"agent_end"}}
        touch go
        ev agent_end @s
        > get_state @s
        ok {"data":{"isStreaming":false}}
    "#

    a_replay_is_accepted_and_finished_and_never_started => r#"
        > create_session @s #c
        ok
        > create_session @s #c
        ok {"replayed":true}
        count 2 {"type":"command_accepted","data":{"commandId":"c"}}
        count 1 {"type":"command_started","data":{"commandId":"c"}}
        count 1 {"type":"command_finished","data":{"commandId":"c","replayed":true,"success":true,"sessionVersion":0}}
        count 1 {"type":"session_created"}
    "#

    a_conflict_is_accepted_and_finished_as_a_failure => r#"
        > health_check #c
        ok
        > list_sessions #c
        no Conflicting id 'c': previously used for 'health_check', now used for 'list_sessions'
        count 2 {"type":"command_accepted","data":{"commandId":"c"}}
        count 1 {"type":"command_started","data":{"commandId":"c"}}
        count 1 {"type":"command_finished","data":{"commandId":"c","success":false}}
    "#
}
