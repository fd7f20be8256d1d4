//! Section 12 and the limits of the notes: lengths, counts and rates.

transcripts! {
    a_message_that_is_too_long_is_refused => r#"
        > create_session @s
        ok
        >! prompt @s {"message":"${x*200001}"}
        no Validation failed: message: must be at most 200000 characters, not 200001
        >! steer @s {"message":"${x*200001}"}
        no Validation failed: message: must be at most 200000 characters, not 200001
        >! follow_up @s {"message":"${x*200001}"}
        no Validation failed: message: must be at most 200000 characters, not 200001
        > prompt @s {"message":"${x*200000}"}
        ok
    "#

    a_message_of_more_than_ten_megabytes_is_refused_and_the_connection_stays_open => r#"
        raw {"type":"health_check","id":"h","filler":"${x*10485760}"}
        < {"type":"response","id":"h","command":"health_check","success":false,"error":"$~Message too large"}
        > get_metrics
        ok {"data":{"commandsRejected":{"messageSize":1}}}
        never {"type":"command_accepted","data":{"commandId":"h"}}
    "#

    a_shell_command_that_is_too_long_is_refused => r#"
        > create_session @s
        ok
        >! bash @s {"command":"${x*20001}"}
        no Validation failed: command: must be at most 20000 characters, not 20001
        > bash @s {"command":": ${x*19998}"}
        ok {"data":{"exitCode":0}}
    "#

    a_name_that_is_too_long_is_refused => r#"
        > create_session @s
        ok
        >! set_session_name @s {"name":"${x*257}"}
        no Validation failed: name: must be at most 256 characters, not 257
        > set_session_name @s {"name":"${x*256}"}
        ok
    "#

    an_id_or_key_that_is_too_long_is_refused_and_not_repeated => r#"
        >! health_check #${x*257}
        < {"type":"response","id":"$none","command":"health_check","success":false,"error":"Validation failed: id: must be at most 256 characters, not 257"}
        > health_check #${x*256}
        ok
        >! health_check {"idempotencyKey":"${x*257}"}
        no Validation failed: idempotencyKey: must be at most 256 characters, not 257
        >! get_state @${x*257}
        no Validation failed: sessionId: must be at most 256 characters, not 257
    "#

    a_type_that_is_too_long_is_not_repeated => r#"
        raw {"type":"${x*300}","id":"t"}
        < {"type":"response","id":"t","command":"unknown","success":false,"error":"$~must be at most"}
    "#

    a_path_that_is_too_long_is_refused => r#"
        >! load_session {"sessionPath":"/${x*4096}"}
        no Validation failed: sessionPath: must be at most 4096 characters, not 4097
    "#

    commands_over_the_rate_limit_of_a_session_are_refused => r#"
        env PUSH_PI_SESSION_COMMANDS=2
        > create_session @s
        ok
        > get_state @s
        ok
        > get_state @s #over
        no Rate limit exceeded for this session. Please retry later.
        > create_session @t
        ok
        > health_check
        ok
        never {"type":"command_accepted","data":{"commandId":"over"}}
        > get_metrics
        ok {"data":{"commandsRejected":{"rateLimit":1,"globalRateLimit":0}}}
    "#

    commands_over_the_rate_limit_of_the_server_are_refused => r#"
        env PUSH_PI_COMMANDS=2
        > health_check
        ok
        > get_metrics
        ok {"data":{"rateLimitUsage":{"globalCount":2,"globalLimit":2}}}
        > list_sessions #over
        no Rate limit exceeded for the server. Please retry later.
        never {"type":"command_accepted","data":{"commandId":"over"}}
    "#

    malformed_lines_do_not_count_against_the_rate_limit => r#"
        env PUSH_PI_COMMANDS=1
        >! bogus
        no ~Unknown command
        raw {
        < {"type":"response","error":"Invalid JSON"}
        > health_check
        ok
        > health_check
        no ~Rate limit exceeded
    "#

    more_sessions_than_allowed_are_refused => r#"
        env PUSH_PI_SESSIONS=1
        > create_session @s
        ok
        > create_session @t
        no Session limit reached
        > get_metrics
        ok {"data":{"commandsRejected":{"sessionLimit":1}}}
        > delete_session @s
        ok
        > create_session @t
        ok
    "#

    a_file_is_not_loaded_over_the_limit_of_sessions => r#"
        env PUSH_PI_SESSIONS=1
        file ~/.pi/agent/sessions/one.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        > create_session @s
        ok
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/one.jsonl"}
        no Session limit reached
    "#

    too_many_images_and_invalid_images_are_refused => r#"
        > create_session @s
        ok
        >! prompt @s {"message":"m","images":"x"}
        no Validation failed: images: must be a list of images
        >! prompt @s {"message":"m","images":[{"type":"image","mimeType":"image/png"}]}
        no Validation failed: images[0]: must be an image with a type and data in base64
        >! prompt @s {"message":"m","images":[{"type":"image","mimeType":"text/html","data":"AAAA"}]}
        no Validation failed: images[0]: must be an image with a type and data in base64
        >! steer @s {"message":"m","images":[{"type":"image","mimeType":"image/png","data":"not base64!"}]}
        no Validation failed: images[0]: must be an image with a type and data in base64
    "#

    a_server_that_shuts_down_accepts_no_commands => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ touch here; until [ -e go ]; do sleep 0.01; done"}
        ok
        until here
        term
        < {"type":"server_shutdown","data":{"reason":"graceful_shutdown","timeoutMs":10000}}
        > health_check #late
        no Server is shutting down
        > create_session @t #later
        no Server is shutting down
        never {"type":"command_accepted","data":{"commandId":"late"}}
        never {"type":"command_accepted","data":{"commandId":"later"}}
        touch go
        ev agent_end @s
        closed
    "#

    a_refusal_of_a_message_that_is_too_long_has_its_id_size_and_limit => r#"
        raw {"id":"first","type":"prompt","sessionId":"s","message":"${x*10485760}"}
        < {"type":"response","id":"first","command":"prompt","success":false,"error":"Message too large: 10485819 bytes (max 10485760)"}
        raw {"type":"prompt","sessionId":"s","message":"${x*10485760}\\\",\"id\":\"inner","id":"last"}
        < {"type":"response","id":"last","command":"prompt","success":false,"error":"$~(max 10485760)"}
        raw {"type":"prompt","response":{"id":"inner","message":"${x*10485760}","id":"inner"}}
        < {"type":"response","id":"$none","command":"prompt","success":false,"error":"$~(max 10485760)"}
    "#

    a_refusal_of_a_line_that_is_not_json_has_its_id => r#"
        raw {"id":"broken","type":"get_state","sessionId":}
        < {"type":"response","id":"broken","command":"unknown","success":false,"error":"Invalid JSON"}
        raw {"type":"get_state","data":{"id":"inner"}, oops}
        < {"type":"response","id":"$none","command":"unknown","success":false,"error":"Invalid JSON"}
    "#
}
