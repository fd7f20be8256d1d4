//! The order of commands in a lane, and the rate budgets of ordinary and of control commands.

transcripts! {
    a_read_shows_earlier_changes_of_the_same_connection => r#"
        > create_session @s
        ok
        > set_session_name @s #one {"name":"first"}
        > get_state @s #a
        > set_session_name @s #two {"name":"second"}
        > get_state @s #b
        ok #a {"data":{"sessionName":"first"},"sessionVersion":1}
        ok #b {"data":{"sessionName":"second"},"sessionVersion":2}
    "#

    a_read_overtakes_a_running_shell_command_but_no_earlier_change => r#"
        > create_session @s
        ok
        > bash @s #slow {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > get_state @s #beside
        ok #beside {"data":{"sessionName":"$none"}}
        > set_session_name @s #name {"name":"n"}
        > get_state @s #behind
        > health_check
        ok
        never {"type":"command_started","data":{"commandId":"behind"}}
        touch go
        ok #slow
        ok #name
        ok #behind {"data":{"sessionName":"n"}}
    "#

    control_commands_have_a_separate_rate_budget => r#"
        env PUSH_PI_SESSION_COMMANDS=2
        > create_session @s
        ok
        > prompt @s {"message":"$? touch approved"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        > get_state @s
        no Rate limit exceeded for this session. Please retry later.
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok
        ev agent_end @s
        > delete_session @s
        ok
        > abort @s
        no Rate limit exceeded for this session. Please retry later.
    "#

    the_server_has_a_separate_control_budget => r#"
        env PUSH_PI_COMMANDS=2
        > create_session @s
        ok
        > health_check
        ok
        > health_check
        no Rate limit exceeded for the server. Please retry later.
        > abort @s
        ok
        > delete_session @s
        ok
        > abort @s
        no Rate limit exceeded for the server. Please retry later.
    "#

    answers_have_a_separate_rate_budget => r#"
        env PUSH_PI_SESSION_COMMANDS=1
        > create_session @s
        ok
        > abort @s
        ok
        > extension_ui_response @s {"requestId":"none","response":{"method":"cancelled"}}
        no Rate limit exceeded for this session. Please retry later.
        > get_metrics
        ok {"data":{"commandsRejected":{"rateLimit":0,"extensionUIResponseRateLimit":1}}}
    "#
}
