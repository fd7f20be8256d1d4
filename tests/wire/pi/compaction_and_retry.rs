//! Section 17.2, compaction and retry, and sections 19.4 and 19.5.

transcripts! {
    compact_replaces_the_conversation_by_a_summary => r#"
        model "First answer"
        model "A summary of it"
        model "Second answer"
        > create_session @s
        ok
        > prompt @s {"message":"First question"}
        ok
        ev agent_end @s
        > compact @s {"customInstructions":"mind the colours"}
        ok {"data":{"summary":"$~A summary of it","firstKeptEntryId":"$_","tokensBefore":"$_"},"sessionVersion":2}
        request 1 {"messages":["$has",{"content":"$~mind the colours"}]}
        > get_messages @s
        ok {"data":{"messages":["$has",{"role":"compactionSummary","summary":"$~A summary of it"}]}}
        > prompt @s {"message":"Second question"}
        ok
        ev agent_end @s
        request 2 {"messages":["$has",{"content":"$~A summary of it"}]}
    "#

    compact_reports_its_progress => r#"
        model "First answer"
        model "A summary"
        > create_session @s
        ok
        > prompt @s {"message":"First question"}
        ok
        ev agent_end @s
        > compact @s
        ok
        ev extension_ui_request @s {"method":"setStatus","key":"compaction","text":"compacting"}
        ev extension_ui_request @s {"method":"setStatus","key":"compaction","text":""}
    "#

    compact_while_a_run_is_active_is_refused => r#"
        model [{"say":"I begin"},"stall"]
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        ev agent_start @s
        > compact @s #c
        is {"success":false}
        > abort @s
        ok
        ev agent_end @s
    "#

    compact_without_a_conversation_fails => r#"
        model "unused"
        > create_session @s
        ok
        > compact @s
        is {"success":false}
        > get_state @s
        ok {"sessionVersion":0}
        >! compact @s {"customInstructions":7}
        no Validation failed: customInstructions: must be a string
        > compact @nobody
        no Session nobody not found
    "#

    a_model_that_cannot_summarise_fails_the_command => r#"
        env PUSH_MODEL_ATTEMPTS=1
        model "First answer"
        model {"status":400,"body":"{\"error\":{\"message\":\"no summaries here\"}}"}
        > create_session @s
        ok
        > prompt @s {"message":"First question"}
        ok
        ev agent_end @s
        > compact @s
        no ~no summaries here
        > get_state @s
        ok {"sessionVersion":1}
    "#

    abort_compaction_stops_it => r#"
        model "First answer"
        model {"never":true}
        > create_session @s
        ok
        > prompt @s {"message":"First question"}
        ok
        ev agent_end @s
        > compact @s #c
        ev extension_ui_request @s {"method":"setStatus","key":"compaction","text":"compacting"}
        > abort_compaction @s #a
        ok #a {"data":"$none","sessionVersion":2}
        no #c Compaction was aborted
    "#

    abort_compaction_with_nothing_to_do_succeeds => r#"
        > create_session @s
        ok
        > abort_compaction @s
        ok {"sessionVersion":1}
        > abort_compaction @nobody
        no Session nobody not found
    "#

    a_message_sent_during_compaction_waits_for_it => r#"
        model "First answer"
        model {"never":true}
        model [{"say":"I begin"},"stall"]
        > create_session @s
        ok
        > prompt @s {"message":"First question"}
        ok
        ev agent_end @s
        > compact @s #c
        ev extension_ui_request @s {"method":"setStatus","key":"compaction","text":"compacting"}
        > steer @s #steer {"message":"Second question"}
        ok #steer
        > prompt @s #waits {"message":"Third question"}
        < {"type":"command_accepted","data":{"commandId":"waits"}}
        > abort_compaction @s #stop
        ok #stop
        no #c Compaction was aborted
        is #waits {"success":false,"error":"$~Agent is already processing"}
        ev message_start @s {"message":{"role":"user","content":[{"text":"Second question"}]}}
        > abort @s
        ok
        ev agent_end @s
    "#

    a_long_conversation_is_compacted_automatically => r#"
        config context_window = 14000
        model "First answer"
        model "A summary of it"
        model "Second answer"
        > create_session @s
        ok
        > prompt @s {"message":"First ${x*20000}"}
        ok
        ev agent_end @s
        > prompt @s {"message":"Second ${x*20000}"}
        ok
        ev auto_compaction_start @s {"reason":"threshold"}
        ev auto_compaction_end @s {"aborted":false,"willRetry":false,"result":{"summary":"$~A summary of it"}}
        ev agent_end @s
    "#

    a_conversation_over_the_context_window_is_compacted_and_sent_again => r#"
        config context_window = 18000
        model "First answer"
        model {"status":400,"body":"{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}"}
        model "A summary of it"
        model "Second answer"
        > create_session @s
        ok
        > prompt @s {"message":"First ${x*8000}"}
        ok
        ev agent_end @s
        > prompt @s {"message":"Second ${x*24000}"}
        ok
        ev auto_compaction_start @s {"reason":"overflow"}
        ev auto_compaction_end @s {"aborted":false,"willRetry":true,"result":{"summary":"$~A summary of it"}}
        ev agent_end @s
        > get_last_assistant_text @s
        ok {"data":{"text":"Second answer"}}
    "#

    set_auto_compaction_disables_it => r#"
        config context_window = 14000
        model "First answer"
        model "Second answer"
        > create_session @s
        ok
        > set_auto_compaction @s {"enabled":false}
        ok {"data":"$none","sessionVersion":1}
        ev extension_ui_request @s {"method":"setStatus","key":"auto_compaction","text":"off"}
        > prompt @s {"message":"First ${x*20000}"}
        ok
        ev agent_end @s
        > prompt @s {"message":"Second ${x*20000}"}
        ok
        ev agent_end @s
        never {"type":"event","event":{"type":"auto_compaction_start"}}
        > get_last_assistant_text @s
        ok {"data":{"text":"Second answer"}}
    "#

    set_auto_compaction_accepts_only_booleans => r#"
        > create_session @s
        ok
        >! set_auto_compaction @s
        no Validation failed: enabled: must be true or false
        >! set_auto_compaction @s {"enabled":"on"}
        no Validation failed: enabled: must be true or false
        > set_auto_compaction @nobody {"enabled":true}
        no Session nobody not found
    "#

    a_request_to_a_failing_server_is_retried => r#"
        env PUSH_MODEL_ATTEMPTS=3
        model {"status":500,"body":"oops"}
        model "Now it works"
        > create_session @s
        ok
        > prompt @s {"message":"hi"}
        ok
        ev auto_retry_start @s {"attempt":1,"maxAttempts":"$_","delayMs":"$_","errorMessage":"$_"}
        ev auto_retry_end @s {"success":true,"attempt":1}
        ev agent_end @s
        > get_last_assistant_text @s
        ok {"data":{"text":"Now it works"}}
    "#

    set_auto_retry_off_sends_one_request => r#"
        env PUSH_MODEL_ATTEMPTS=3
        model {"status":500,"body":"oops"}
        model "Not asked"
        > create_session @s
        ok
        > set_auto_retry @s {"enabled":false}
        ok {"data":"$none","sessionVersion":1}
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s {"messages":["$has",{"role":"assistant","stopReason":"error","errorMessage":"$_"}]}
        never {"type":"event","event":{"type":"auto_retry_start"}}
    "#

    set_auto_retry_accepts_only_booleans => r#"
        > create_session @s
        ok
        >! set_auto_retry @s {"enabled":1}
        no Validation failed: enabled: must be true or false
        > set_auto_retry @nobody {"enabled":true}
        no Session nobody not found
    "#

    abort_retry_ends_the_run => r#"
        env PUSH_MODEL_ATTEMPTS=3
        model {"status":503,"body":"later","retry-after":"20"}
        > create_session @s
        ok
        > prompt @s {"message":"hi"}
        ok
        ev auto_retry_start @s {"attempt":1}
        > abort_retry @s
        ok {"data":"$none","sessionVersion":2}
        ev auto_retry_end @s {"success":false,"attempt":1,"finalError":"$_"}
        ev agent_end @s
    "#

    abort_retry_with_nothing_to_do_succeeds => r#"
        > create_session @s
        ok
        > abort_retry @s
        ok {"sessionVersion":1}
        > abort_retry @nobody
        no Session nobody not found
    "#
}
