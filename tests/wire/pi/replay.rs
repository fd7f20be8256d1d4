//! Section 8: a command with an id or key runs once, its outcome is replayed, and other uses are conflicts.

transcripts! {
    a_repeated_id_gets_the_same_outcome_and_runs_once => r#"
        > create_session @s
        ok
        > set_session_name @s #n {"name":"first"}
        ok {"sessionVersion":1,"replayed":"$none"}
        > set_session_name @s #n {"name":"first"}
        ok {"sessionVersion":1,"replayed":true,"id":"n"}
        > get_state @s
        ok {"sessionVersion":1}
        count 1 {"type":"command_started","data":{"commandId":"n"}}
    "#

    a_replay_returns_the_stored_outcome => r#"
        > create_session @s
        ok
        > get_state @s #look
        ok {"data":{"sessionName":"$none"},"sessionVersion":0}
        > set_session_name @s {"name":"new"}
        ok {"sessionVersion":1}
        > get_state @s #look
        ok {"data":{"sessionName":"$none"},"sessionVersion":0,"replayed":true}
    "#

    an_id_for_another_command_is_a_conflict => r#"
        > create_session @s
        ok
        > get_state @s #c
        ok
        > get_messages @s #c
        no Conflicting id 'c': previously used for 'get_state', now used for 'get_messages'
    "#

    an_id_with_other_arguments_is_a_conflict => r#"
        > create_session @s
        ok
        > set_session_name @s #c {"name":"one"}
        ok
        > set_session_name @s #c {"name":"two"}
        no Conflicting id 'c': previously used for 'set_session_name', now used for 'set_session_name'
        > get_state @s
        ok {"data":{"sessionName":"one"},"sessionVersion":1}
    "#

    a_conflict_is_not_stored => r#"
        > health_check #c
        ok
        > list_sessions #c
        no ~Conflicting id
        > health_check #c
        ok {"replayed":true}
    "#

    the_order_of_fields_does_not_matter => r#"
        > create_session @s
        ok
        raw {"type":"set_session_name","id":"n","sessionId":"s","name":"one"}
        < {"type":"response","id":"n","success":true,"replayed":"$none"}
        raw { "name":"one", "sessionId":"s", "id":"n", "type":"set_session_name" }
        < {"type":"response","id":"n","success":true,"replayed":true}
    "#

    a_failure_is_replayed => r#"
        > get_state @s #g
        no Session s not found
        > create_session @s
        ok
        > get_state @s #g
        is {"success":false,"error":"Session s not found","replayed":true}
    "#

    a_repeated_key_gets_the_same_outcome_under_a_new_id => r#"
        > create_session @s
        ok
        > set_session_name @s #one =key {"name":"n"}
        ok {"sessionVersion":1}
        > set_session_name @s #two =key {"name":"n"}
        ok {"id":"two","sessionVersion":1,"replayed":true}
        never {"type":"command_started","data":{"commandId":"two"}}
        > get_state @s
        ok {"sessionVersion":1}
    "#

    a_replay_without_an_id_does_not_reveal_the_first_id => r#"
        > create_session @s
        ok
        > set_session_name @s #one =key {"name":"n"}
        ok
        > set_session_name @s #- =key {"name":"n"}
        ok {"id":"$none","replayed":true}
    "#

    a_key_works_without_ids => r#"
        > create_session @s
        ok
        > bash @s #- =key {"command":"echo run >> runs; cat runs"}
        ok {"data":{"output":"run\n"}}
        > bash @s #- =key {"command":"echo run >> runs; cat runs"}
        ok {"data":{"output":"run\n"},"replayed":true}
    "#

    a_key_for_another_command_is_a_conflict => r#"
        > create_session @s
        ok
        > set_session_name @s #one =key {"name":"n"}
        ok
        > set_session_name @s #two =key {"name":"m"}
        no Conflicting idempotencyKey 'key': previously used for 'set_session_name', now used for 'set_session_name'
        > get_messages @s #three =key
        no Conflicting idempotencyKey 'key': previously used for 'set_session_name', now used for 'get_messages'
    "#

    a_key_is_scoped_to_its_session => r#"
        > create_session @s
        ok
        > create_session @t
        ok
        > set_session_name @s =key {"name":"n"}
        ok {"replayed":"$none"}
        > set_session_name @t =key {"name":"m"}
        ok {"replayed":"$none"}
        > list_sessions =key
        ok {"replayed":"$none"}
        > health_check =key
        no ~Conflicting idempotencyKey 'key': previously used for 'list_sessions'
    "#

    the_key_is_looked_up_before_the_id => r#"
        > health_check #one =key
        ok
        > list_sessions #two
        ok
        > list_sessions #two =key
        no Conflicting idempotencyKey 'key': previously used for 'health_check', now used for 'list_sessions'
        > health_check #two =key
        ok {"id":"two","command":"health_check","replayed":true}
    "#

    a_key_expires => r#"
        env PUSH_PI_KEY_SECONDS=0
        > create_session @s
        ok
        > set_session_name @s #one =key {"name":"n"}
        ok {"sessionVersion":1}
        > set_session_name @s #two =key {"name":"n"}
        ok {"sessionVersion":2,"replayed":"$none"}
    "#

    a_duplicate_of_one_in_flight_waits_for_its_outcome => r#"
        B: connect
        > create_session @s
        ok
        > bash @s #b {"command":"echo run >> runs; touch here; until [ -e go ]; do sleep 0.01; done; cat runs"}
        until here
        B: > bash @s #b {"command":"echo run >> runs; touch here; until [ -e go ]; do sleep 0.01; done; cat runs"}
        B: < {"type":"command_accepted","data":{"commandId":"b"}}
        B: > get_state @s #sync
        B: ok #sync
        B: never {"type":"response","id":"b"}
        touch go
        ok #b {"data":{"output":"run\n"},"replayed":"$none"}
        B: ok #b {"data":{"output":"run\n"},"replayed":true}
        B: count 1 {"type":"command_started","data":{"commandId":"b"}}
    "#

    another_connection_gets_the_same_outcome => r#"
        > create_session @s #c
        ok {"data":"$made"}
        B: > create_session @s #c
        B: ok {"data":"$made","replayed":true}
    "#

    replays_are_not_rate_limited => r#"
        env PUSH_PI_SESSION_COMMANDS=3
        > create_session @s #c
        ok
        > get_state @s #a
        ok
        > get_state @s #b
        ok
        > get_state @s #over
        no ~Rate limit exceeded
        > create_session @s #c
        ok {"replayed":true}
        > get_state @s #a
        ok {"replayed":true}
        > get_state @s #over
        no ~Rate limit exceeded
    "#

    a_refusal_is_not_an_outcome => r#"
        >! prompt @s #p
        no ~Validation failed
        > create_session @s
        ok
        > prompt @s #p {"message":"plain words"}
        ok {"replayed":"$none"}
    "#

    images_are_part_of_the_fingerprint => r#"
        > create_session @s
        ok
        > follow_up @s #f {"message":"$ true","images":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}
        ok
        > follow_up @s #f {"message":"$ true","images":[{"type":"image","mimeType":"image/png","data":"BBBB"}]}
        no ~Conflicting id 'f'
        > follow_up @s #f {"message":"$ true","images":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}
        ok {"replayed":true}
    "#
}
