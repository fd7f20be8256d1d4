//! Sections 3 to 6: messages, the envelope of commands and of answers, and who hears what.

transcripts! {
    the_server_speaks_first_and_says_what_it_is => r#"
        << {"type":"server_ready","data":{"serverVersion":"$_","protocolVersion":"1.0.0","transports":["websocket","stdio"]}}
    "#

    an_answer_carries_the_id_of_its_command => r#"
        > health_check #mine
        ok {"id":"mine","command":"health_check","data":{"healthy":true,"issues":[],"hasOpenCircuit":false,"hasOpenBashCircuit":false}}
    "#

    a_command_without_an_id_is_named_by_the_server_and_answered_without_one => r#"
        > health_check #-
        < {"type":"command_accepted","data":{"commandId":"$~anon:","commandType":"health_check","dependsOn":[]}}
        ok {"id":"$none"}
    "#

    what_is_no_json_is_answered => r#"
        raw {"type":
        < {"id":"$none","type":"response","command":"unknown","success":false,"error":"Invalid JSON"}
        > health_check
        ok
    "#
}
