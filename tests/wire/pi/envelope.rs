//! Sections 3 to 6: messages, the envelopes of commands and responses, and their recipients.

transcripts! {
    the_server_sends_the_first_line_with_its_version => r#"
        << {"type":"server_ready","data":{"serverVersion":"$_","protocolVersion":"1.0.0","transports":["websocket","stdio"]}}
    "#

    a_response_carries_the_id_of_its_command => r#"
        > health_check #mine
        ok {"id":"mine","command":"health_check","data":{"healthy":true,"issues":[],"hasOpenCircuit":false,"hasOpenBashCircuit":false}}
    "#

    a_command_without_an_id_gets_an_internal_id_and_a_response_without_one => r#"
        > health_check #-
        < {"type":"command_accepted","data":{"commandId":"$~anon:","commandType":"health_check","dependsOn":[]}}
        ok {"id":"$none"}
        > health_check #-
        ok {"id":"$none","replayed":"$none"}
        count 2 {"type":"command_started"}
    "#

    a_line_that_is_not_json_gets_an_error_and_the_connection_stays_open => r#"
        raw {"type":
        < {"id":"$none","type":"response","command":"unknown","success":false,"error":"Invalid JSON"}
        raw not json at all
        < {"id":"$none","type":"response","command":"unknown","success":false,"error":"Invalid JSON"}
        > health_check
        ok
        count 1 {"type":"command_accepted"}
    "#

    json_that_is_not_an_object_gets_an_error => r#"
        raw [1,2]
        < {"type":"response","command":"unknown","success":false,"error":"Validation failed: command: must be a JSON object"}
        raw "text"
        < {"type":"response","command":"unknown","success":false,"error":"$~Validation failed"}
        never {"type":"command_accepted"}
    "#

    a_command_without_a_type_is_refused => r#"
        raw {"id":"x"}
        < {"id":"x","type":"response","command":"unknown","success":false,"error":"Validation failed: type: must be a string"}
        raw {"id":"y","type":7}
        < {"id":"y","command":"unknown","success":false,"error":"Validation failed: type: must be a string"}
        never {"type":"command_accepted"}
    "#

    an_unknown_command_is_refused_by_name => r#"
        >! bogus #b
        is {"id":"b","command":"bogus","success":false,"error":"Validation failed: type: Unknown command type 'bogus'"}
        never {"type":"command_accepted"}
    "#

    an_id_with_the_server_s_own_prefix_is_refused => r#"
        >! health_check #anon:1
        no Validation failed: id: Cannot use reserved prefix 'anon:'
        never {"type":"command_accepted"}
    "#

    an_id_that_is_empty_or_not_a_string_is_refused => r#"
        raw {"type":"health_check","id":""}
        < {"type":"response","command":"health_check","success":false,"error":"Validation failed: id: must not be empty"}
        raw {"type":"health_check","id":5}
        < {"type":"response","command":"health_check","success":false,"error":"Validation failed: id: must be a string"}
        never {"type":"command_accepted"}
    "#

    a_key_that_is_empty_or_not_a_string_is_refused => r#"
        >! health_check #a {"idempotencyKey":""}
        no Validation failed: idempotencyKey: must not be empty
        >! health_check #b {"idempotencyKey":[]}
        no Validation failed: idempotencyKey: must be a string
        never {"type":"command_accepted"}
    "#

    dependencies_that_are_not_a_list_of_ids_are_refused => r#"
        >! health_check #a {"dependsOn":"b"}
        no Validation failed: dependsOn: must be a list of command ids
        >! health_check #b {"dependsOn":[1]}
        no Validation failed: dependsOn[0]: must be a command id
        >! health_check #c {"dependsOn":["x",""]}
        no Validation failed: dependsOn[1]: must be a command id
        never {"type":"command_accepted"}
    "#

    a_version_that_is_not_a_number_is_refused => r#"
        >! get_state #a @s {"ifSessionVersion":"1"}
        no Validation failed: ifSessionVersion: must be a whole number that is not negative
        >! get_state #b @s {"ifSessionVersion":-1}
        no Validation failed: ifSessionVersion: must be a whole number that is not negative
        never {"type":"command_accepted"}
    "#

    a_session_command_without_a_session_is_refused => r#"
        >! get_state #a
        no Validation failed: sessionId: Session commands must have a non-empty string 'sessionId'
        >! get_state #b {"sessionId":""}
        no Validation failed: sessionId: Session commands must have a non-empty string 'sessionId'
        >! prompt #c {"sessionId":7,"message":"x"}
        no Validation failed: sessionId: Session commands must have a non-empty string 'sessionId'
        never {"type":"command_accepted"}
    "#

    unknown_fields_are_ignored_and_null_counts_as_absent => r#"
        > create_session #c {"sessionId":null,"color":"red"}
        ok {"data":{"sessionId":"$~sess_"},"sessionVersion":0}
    "#

    lifecycle_events_go_to_all_clients_and_responses_to_the_sender => r#"
        B: connect
        > create_session @s #mine
        ok
        B: < {"type":"command_accepted","data":{"commandId":"mine","commandType":"create_session","sessionId":"s","dependsOn":[]}}
        B: << {"type":"command_started","data":{"commandId":"mine"}}
        B: << {"type":"command_finished","data":{"commandId":"mine","success":true,"sessionVersion":0}}
        B: << {"type":"session_created","data":{"sessionId":"s"}}
        B: > health_check #other
        B: ok
        B: never {"type":"response","id":"mine"}
    "#

    events_of_a_session_go_only_to_its_subscribers => r#"
        B: connect
        > create_session @s
        ok
        > prompt @s {"message":"$ echo hello"}
        ok
        ev agent_start @s
        ev agent_end @s
        B: > get_state @s
        B: ok {"data":{"messageCount":"$_"}}
        B: never {"type":"event"}
    "#

    lifecycle_events_carry_the_fields_of_the_command => r#"
        > create_session @s #one
        ok
        > set_session_name @s #two =key {"name":"n","dependsOn":["one"],"ifSessionVersion":0}
        ok
        < {"type":"command_accepted","data":{"commandId":"two","commandType":"set_session_name","sessionId":"s","dependsOn":["one"],"ifSessionVersion":0,"idempotencyKey":"key"}}
        << {"type":"command_finished","data":{"commandId":"two","commandType":"set_session_name","sessionId":"s","dependsOn":["one"],"ifSessionVersion":0,"idempotencyKey":"key","success":true,"error":"$none","sessionVersion":1,"replayed":"$none"}}
    "#

    a_failure_has_an_error_and_no_data => r#"
        > get_state @nowhere #g
        is {"id":"g","command":"get_state","success":false,"error":"Session nowhere not found","data":"$none","sessionVersion":"$none"}
        < {"type":"command_finished","data":{"commandId":"g","success":false,"error":"Session nowhere not found"}}
    "#
}
