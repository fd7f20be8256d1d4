//! What survives a restart: outcomes, sessions, questions; and interrupted commands.

transcripts! {
    an_outcome_is_replayed_after_a_restart => r#"
        > create_session @s #c
        ok {"data":"$made"}
        > set_session_name @s #n =key {"name":"kept"}
        ok {"sessionVersion":1}
        term
        < {"type":"server_shutdown"}
        closed
        restart
        > create_session @s #c
        ok {"data":"$made","sessionVersion":0,"replayed":true}
        > set_session_name @s #n {"name":"kept"}
        ok {"sessionVersion":1,"replayed":true}
        > set_session_name @s #other =key {"name":"kept"}
        ok {"sessionVersion":1,"replayed":true}
        > set_session_name @s #n {"name":"other"}
        no Conflicting id 'n': previously used for 'set_session_name', now used for 'set_session_name'
        > get_state @s
        ok {"data":{"sessionName":"kept"},"sessionVersion":1}
    "#

    push_daemon_restart_keeps_outcomes => r#"
        config [pi]
        config enabled = true
        config listen = "127.0.0.1:0"
        > create_session @s #c
        ok {"data":"$made"}
        replace
        > create_session @s #c
        ok {"data":"$made","replayed":true}
        > get_state @s
        ok {"sessionVersion":0}
    "#

    an_outcome_is_replayed_after_a_crash => r#"
        > create_session @s #c
        ok
        > bash @s #b {"command":"echo run >> runs; cat runs"}
        ok {"data":{"output":"run\n"}}
        > get_state @nowhere #g
        no Session nowhere not found
        > delete_session @nowhere #d
        no Session nowhere not found
        kill
        > bash @s #b {"command":"echo run >> runs; cat runs"}
        ok {"data":{"output":"run\n"},"replayed":true}
        > delete_session @nowhere #d
        is {"success":false,"error":"Session nowhere not found","replayed":true}
    "#

    an_interrupted_command_is_not_run_again => r#"
        > create_session @s
        ok
        > bash @s #b =key {"command":"echo run >> runs; touch here; until [ -e never ]; do sleep 0.01; done"}
        until here
        kill
        > bash @s #b =key {"command":"echo run >> runs; touch here; until [ -e never ]; do sleep 0.01; done"}
        is {"success":false,"error":"interrupted by restart","replayed":true}
        > bash @s #again =key {"command":"echo run >> runs; touch here; until [ -e never ]; do sleep 0.01; done"}
        is {"id":"again","success":false,"error":"interrupted by restart","replayed":true}
        > bash @s {"command":"cat runs"}
        ok {"data":{"output":"run\n"}}
    "#

    a_waiting_command_is_interrupted => r#"
        > create_session @s
        ok
        > bash @s #b {"command":"touch here; until [ -e never ]; do sleep 0.01; done"}
        until here
        > set_session_name @s #n {"name":"never"}
        < {"type":"command_accepted","data":{"commandId":"n"}}
        > set_session_name @t #x {"name":"sync"}
        no #x Session t not found
        kill
        > set_session_name @s #n {"name":"never"}
        is {"success":false,"error":"interrupted by restart","replayed":true}
        > get_state @s
        ok {"data":{"sessionName":"$none"}}
    "#

    an_interrupted_dependency_has_failed => r#"
        > create_session @s
        ok
        > bash @s #b {"command":"touch here; until [ -e never ]; do sleep 0.01; done"}
        until here
        kill
        > health_check {"dependsOn":["b"]}
        no Dependency 'b' failed: interrupted by restart
    "#

    a_dependency_from_before_the_restart_is_known => r#"
        > create_session @s #c
        ok
        kill
        > set_session_name @s {"name":"n","dependsOn":["c"]}
        ok {"sessionVersion":1}
    "#

    a_session_continues_after_a_crash => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ echo hello"}
        ok
        ev agent_end @s {"messages":"$all"}
        kill
        > get_messages @s
        ok {"data":{"messages":"$all"},"sessionVersion":1}
        > switch_session @s
        ok
        > prompt @s {"message":"$ echo again"}
        ok {"sessionVersion":2}
        ev agent_end @s
    "#

    a_question_is_still_pending_after_a_restart => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? touch approved"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        kill
        > switch_session @s
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok {"sessionVersion":2}
        ev agent_end @s
        until approved
    "#

    a_deleted_session_stays_deleted => r#"
        > create_session @s
        ok
        > delete_session @s
        ok
        kill
        > get_state @s
        no Session s not found
        > list_sessions
        ok {"data":{"sessions":[]}}
    "#

    entry_ids_are_the_same_after_a_restart => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ true"}
        ok
        ev agent_end @s
        > get_fork_messages @s
        ok {"data":{"messages":"$all"}}
        kill
        > get_fork_messages @s
        ok {"data":{"messages":"$all"}}
    "#
}
