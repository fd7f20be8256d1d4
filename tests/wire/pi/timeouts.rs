//! Section 11: a command that times out has failed, and its outcome is final.

transcripts! {
    a_command_that_takes_too_long_has_failed => r#"
        env PUSH_PI_COMMAND_SECONDS=0.3
        > create_session @s
        ok
        > bash @s #b {"command":"until [ -e never ]; do sleep 0.01; done"}
        is {"success":false,"error":"Command 'bash' timed out after 300ms","timedOut":true,"data":"$none"}
        < {"type":"command_started","data":{"commandId":"b"}}
        << {"type":"command_finished","data":{"commandId":"b","success":false,"error":"Command 'bash' timed out after 300ms"}}
    "#

    a_timeout_is_replayed => r#"
        env PUSH_PI_COMMAND_SECONDS=0.3
        > create_session @s
        ok
        > bash @s #b =key {"command":"until [ -e go ]; do sleep 0.01; done"}
        is {"timedOut":true,"replayed":"$none"}
        touch go
        > bash @s #b =key {"command":"until [ -e go ]; do sleep 0.01; done"}
        is {"success":false,"error":"Command 'bash' timed out after 300ms","timedOut":true,"replayed":true}
        > bash @s #other =key {"command":"until [ -e go ]; do sleep 0.01; done"}
        is {"id":"other","success":false,"timedOut":true,"replayed":true}
    "#

    a_late_end_does_not_change_the_outcome => r#"
        env PUSH_PI_COMMAND_SECONDS=2
        model [{"say":"hello"}]
        model {"never":true}
        > create_session @s
        ok
        > follow_up @s {"message":"hi"}
        ok
        ev agent_end @s
        > compact @s #c
        is {"success":false,"error":"Command 'compact' timed out after 2000ms","timedOut":true}
        > compact @s #c
        is {"success":false,"error":"Command 'compact' timed out after 2000ms","timedOut":true,"replayed":true}
        count 1 {"type":"command_finished","data":{"commandId":"c","replayed":"$none"}}
    "#

    the_lane_continues_after_a_timeout => r#"
        env PUSH_PI_COMMAND_SECONDS=0.3
        > create_session @s
        ok
        > bash @s #b {"command":"until [ -e never ]; do sleep 0.01; done"}
        > set_session_name @s #n {"name":"n"}
        no #b Command 'bash' timed out after 300ms
        ok #n
        << {"type":"command_finished","data":{"commandId":"b"}}
        << {"type":"command_started","data":{"commandId":"n"}}
    "#

    a_timed_out_dependency_has_failed => r#"
        env PUSH_PI_COMMAND_SECONDS=0.3
        > create_session @s
        ok
        > bash @s #b {"command":"until [ -e never ]; do sleep 0.01; done"}
        is {"timedOut":true}
        > set_session_name @s {"name":"n","dependsOn":["b"]}
        no Dependency 'b' failed: Command 'bash' timed out after 300ms
    "#

    a_timeout_survives_a_restart => r#"
        env PUSH_PI_COMMAND_SECONDS=0.3
        > create_session @s
        ok
        > bash @s #b {"command":"until [ -e never ]; do sleep 0.01; done"}
        is {"timedOut":true}
        term
        closed
        restart
        > bash @s #b {"command":"until [ -e never ]; do sleep 0.01; done"}
        is {"success":false,"error":"Command 'bash' timed out after 300ms","timedOut":true,"replayed":true}
    "#

    a_command_without_a_time_limit_does_not_time_out => r#"
        env PUSH_PI_COMMAND_SECONDS=0
        > create_session @s
        ok
        > set_session_name @s {"name":"n"}
        ok
        > export_html @s
        ok
        > delete_session @s
        ok
    "#
}
