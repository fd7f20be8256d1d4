//! Which sessions are active, and what `delete_session` does: it unloads a session, which other protocols keep.

transcripts! {
    delete_session_keeps_the_session_for_other_protocols => r#"
        > create_session @s
        ok
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > delete_session @s
        ok {"data":{"deleted":true},"sessionVersion":"$none"}
        > list_sessions
        ok {"data":{"sessions":[]}}
        push list_sessions {} -> {"sessions":["$has",{"sessionId":"s","state":"idle"}]}
        push send_user_message {"sessionId":"s","text":"$ echo on"}
        pushev run_complete {"payload":{"outcome":"success"}}
        > get_state @s
        no Session s not found
        > switch_session @s
        no Session s not found
        never {"type":"event","event":{"type":"agent_start"}}
        count 1 {"type":"session_deleted"}
    "#

    delete_session_of_another_protocol_stops_nothing => r#"
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        push send_user_message {"sessionId":"${id}","text":"$ touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > delete_session @${id}
        ok
        > list_sessions
        ok {"data":{"sessions":[]}}
        touch go
        pushev run_complete {"payload":{"outcome":"success"}}
    "#

    delete_session_writes_the_session_file => r#"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"$ echo kept"}
        ok
        ev agent_end @s
        > set_session_name @s {"name":"Last words"}
        > delete_session @s
        ok
        > list_stored_sessions
        ok {"data":{"sessions":[{"sessionId":"s","sessionName":"Last words","sessionFile":"$file"}]}}
        > load_session {"sessionPath":"${file}"}
        ok {"data":{"sessionId":"s","sessionInfo":{"sessionName":"Last words"}},"sessionVersion":0}
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"s"}]}}
    "#

    a_deleted_session_stays_deleted_after_a_restart => r#"
        > create_session @s
        ok
        > create_session @t
        ok
        > delete_session @t
        ok
        kill
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"s"}]}}
        > get_state @t
        no Session t not found
        > get_metrics
        ok {"data":{"sessionCount":1,"stores":{"version":{"sessionCount":1}}}}
    "#

    a_session_that_is_not_in_memory_is_listed_and_counted => r#"
        env PUSH_PI_SESSIONS=1
        model "Hello"
        > create_session @s
        ok
        > set_session_name @s {"name":"n"}
        ok
        > set_thinking_level @s {"level":"high"}
        ok
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s
        > get_state @s
        ok {"data":"$state"}
        kill
        > list_sessions
        ok {"data":{"sessions":["$state"]}}
        push get_metrics {} -> {"residentSessions":0}
        > create_session @t
        no Session limit reached
        > get_state @s
        ok {"data":"$state"}
    "#

    listing_does_not_count_against_the_limit_of_sessions => r#"
        env PUSH_PI_SESSIONS=1
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$one"}
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$two"}
        > list_sessions
        ok {"data":{"sessions":["$has",{"sessionId":"$one"},{"sessionId":"$two"}]}}
        > create_session @s
        ok
        > create_session @t
        no Session limit reached
    "#

    listing_subscribes_to_nothing => r#"
        env PUSH_PARK_SECONDS=1
        > create_session @s
        ok
        kill
        push get_session_snapshot {"sessionId":"s"}
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"s"}]}}
        parked
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"s"}]}}
    "#

    a_deleted_id_can_be_created_again => r#"
        model "One"
        model "Two"
        file ~/other/here.txt "here"
        > create_session @s
        ok
        > set_session_name @s {"name":"old"}
        ok
        > set_thinking_level @s {"level":"high"}
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > delete_session @s
        ok
        > create_session @s {"cwd":"${home}/other"}
        ok {"data":{"sessionId":"s","sessionInfo":{"messageCount":0,"sessionName":"$none","thinkingLevel":"off"}},"sessionVersion":0}
        > get_messages @s
        ok {"data":{"messages":[]}}
        > bash @s {"command":"cat here.txt","excludeFromContext":true}
        ok {"data":{"output":"here"}}
        > prompt @s {"message":"second"}
        ok
        ev agent_end @s
        request 1 {"messages":[{"role":"system"},{"role":"user","content":"second"}]}
        count 2 {"type":"session_created"}
        kill
        > get_state @s
        ok {"data":{"sessionName":"$none"},"sessionVersion":2}
    "#

    a_session_of_another_protocol_is_announced => r#"
        > health_check
        ok
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        < {"type":"session_created","data":{"sessionId":"$id","sessionInfo":{"sessionId":"$id","isStreaming":false,"messageCount":0}}}
        > create_session @s
        ok
        < {"type":"session_created","data":{"sessionId":"s"}}
        push end_session {"sessionId":"${id}"}
        < {"type":"session_deleted","data":{"sessionId":"$id"}}
        > health_check
        ok
        count 2 {"type":"session_created"}
        count 1 {"type":"session_deleted"}
    "#

    a_session_of_another_protocol_is_neither_created_nor_loaded_again => r#"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        > delete_session @${id}
        ok
        > create_session @${id} {"cwd":"${home}"}
        no Session ${id} already exists
        > load_session @${id} {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        no Session ${id} already exists
        push send_user_message {"sessionId":"${id}","text":"$ test $PWD = ${home}/work"}
        pushev run_complete {"payload":{"outcome":"success"}}
        push end_session {"sessionId":"${id}"}
        > create_session @${id} {"cwd":"${home}"}
        no Session ${id} already exists
        > load_session @${id} {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        no Session ${id} already exists
        kill
        > create_session @${id} {"cwd":"${home}"}
        no Session ${id} already exists
        push get_session_snapshot {"sessionId":"${id}"} -> {"state":"completed","ended":true,"meta":{"cwd":"${home}/work"}}
    "#

    delete_session_drops_queued_messages => r#"
        > create_session @s
        ok
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > prompt @s {"message":"$ touch here; until [ -e go ]; do sleep 0.01; done"}
        ok
        until here
        > follow_up @s {"message":"$ touch second"}
        ok
        > follow_up @s {"message":"$ touch third"}
        ok
        > delete_session @s
        ok
        pushev run_complete {"payload":{"outcome":"cancelled"}}
        push send_user_message {"sessionId":"s","text":"$ echo on"}
        pushev run_complete {"payload":{"outcome":"success"}}
        absent second
        absent third
    "#
}
