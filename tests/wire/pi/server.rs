//! Section 17.1: commands of the server.

transcripts! {
    list_sessions_lists_active_sessions => r#"
        > list_sessions
        ok {"data":{"sessions":[]},"sessionVersion":"$none"}
        > create_session @s
        ok
        > create_session @t
        ok
        > list_sessions
        ok {"data":{"sessions":["$has",{"sessionId":"s","thinkingLevel":"off","isStreaming":false,"messageCount":0,"createdAt":"$_"},{"sessionId":"t"}]}}
        > delete_session @s
        ok
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"t"}]}}
    "#

    create_session_generates_a_missing_id => r#"
        > create_session
        ok {"data":{"sessionId":"$id","sessionInfo":{"sessionId":"$id","isStreaming":false,"messageCount":0,"thinkingLevel":"off","sessionName":"$none"}},"sessionVersion":0}
        > get_state @${id}
        ok {"data":{"sessionId":"$id"}}
    "#

    create_session_uses_the_given_directory => r#"
        file here.txt "here"
        > create_session @s 
        ok
        > bash @s {"command":"cat here.txt"}
        ok {"data":{"output":"here"}}
    "#

    create_session_defaults_to_the_client_s_directory => r#"
        > create_session @s {"cwd":null}
        ok
        > bash @s {"command":"pwd -P"}
        ok {"data":{"exitCode":0}}
        > list_session_files @s
        ok
    "#

    create_session_refuses_an_invalid_directory => r#"
        >! create_session {"cwd":"relative"}
        no Validation failed: cwd: cwd must be an absolute path
        >! create_session {"cwd":"/tmp/../etc"}
        no Validation failed: cwd: cwd contains potentially dangerous path components
        > create_session @s {"cwd":"${home}/nowhere"}
        no ~nowhere
        > get_state @s
        no Session s not found
    "#

    create_session_leaves_an_existing_session_unchanged => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"mine"}
        ok
        B: > create_session @s
        B: no Session s already exists
        > get_state @s
        ok {"data":{"sessionName":"mine"},"sessionVersion":1}
        count 1 {"type":"session_created"}
    "#

    create_session_subscribes_the_connection => r#"
        > create_session @s
        ok
        B: > prompt @s {"message":"$ true"}
        B: ok
        ev agent_start @s
        ev agent_end @s
        B: > health_check
        B: ok
        B: never {"type":"event"}
    "#

    delete_session_unloads_the_session => r#"
        > create_session @s
        ok
        > delete_session @s
        ok {"data":{"deleted":true},"sessionVersion":"$none"}
        > get_state @s
        no Session s not found
        > prompt @s {"message":"x"}
        no Session s not found
        > delete_session @s
        no Session s not found
        > delete_session @nobody
        no Session nobody not found
        count 1 {"type":"session_deleted"}
    "#

    delete_session_stops_the_active_run => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ touch here; until [ -e never ]; do sleep 0.01; done"}
        ok
        until here
        > delete_session @s
        ok
        ev agent_end @s
        << {"type":"session_deleted","data":{"sessionId":"s"}}
    "#

    switch_session_subscribes => r#"
        > create_session @s
        ok
        B: > switch_session @s
        B: ok {"data":{"sessionInfo":{"sessionId":"s"}},"sessionVersion":0}
        > prompt @s {"message":"$ true"}
        ok
        B: ev agent_start @s
        B: ev agent_end @s
    "#

    switch_session_refuses_an_unknown_session => r#"
        > switch_session @s
        no Session s not found
        >! switch_session
        no Validation failed: sessionId: Session commands must have a non-empty string 'sessionId'
    "#

    switching_twice_sends_events_once => r#"
        > create_session @s
        ok
        > switch_session @s
        ok
        > prompt @s {"message":"$ true"}
        ok
        ev agent_end @s
        count 1 {"type":"event","event":{"type":"agent_start"}}
    "#

    get_metrics_counts_commands => r#"
        B: connect
        > create_session @s
        ok
        >! bogus
        no ~Unknown
        > get_metrics
        ok {"sessionVersion":"$none","data":{"sessionCount":1,"connectionCount":2,"pendingConnectionCount":0,"totalCommandsExecuted":2,"commandsRejected":{"sessionLimit":0,"messageSize":0,"rateLimit":0,"globalRateLimit":0,"connectionLimit":0,"extensionUIResponseRateLimit":0},"zombieSessionsDetected":0,"zombieSessionsCleaned":0,"doubleUnregisterErrors":0,"rateLimitUsage":{"globalCount":2,"globalLimit":1000},"stores":{"replay":{"inFlightCount":1,"outcomeCount":1,"idempotencyCacheSize":0,"maxInFlightCommands":10000,"maxCommandOutcomes":2000,"inFlightRejections":0},"version":{"sessionCount":1},"execution":{"laneCount":"$_"},"lock":{"activeLocks":"$_","timeoutCount":0,"waitingCount":0},"extensionUI":{"pendingCount":0,"maxPendingRequests":"$_","rejectedCount":0},"sessionStore":{"metadataResetCount":0}},"circuitBreakers":"$_","bashCircuitBreaker":{"enabled":true,"globalState":"closed","sessionCount":0,"openSessionCount":0,"totalCalls":0,"totalTimeouts":0,"totalRejected":0}}}
    "#

    get_metrics_counts_keys_and_replays_once => r#"
        > health_check #a =key
        ok
        > health_check #a =key
        ok {"replayed":true}
        > get_metrics
        ok {"data":{"totalCommandsExecuted":2,"stores":{"replay":{"idempotencyCacheSize":1,"outcomeCount":1}}}}
    "#

    health_check_reports_a_healthy_server => r#"
        > health_check
        ok {"data":{"healthy":true,"issues":[],"hasOpenCircuit":false,"hasOpenBashCircuit":false},"sessionVersion":"$none"}
    "#
}
