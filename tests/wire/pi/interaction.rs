//! Section 17.2, interaction: prompt, steer, follow_up, abort.

transcripts! {
    prompt_starts_a_run_and_responds_at_once => r#"
        > create_session @s
        ok
        > prompt @s #p {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok {"data":"$none","sessionVersion":1}
        never {"type":"event","event":{"type":"agent_end"}}
        touch go
        ev agent_end @s
    "#

    prompt_sends_the_message_to_the_model => r#"
        model "Hello yourself"
        > create_session @s
        ok
        > prompt @s {"message":"Hello model"}
        ok
        ev agent_end @s
        request 0 {"messages":["$has",{"role":"user","content":"Hello model"}]}
        > get_last_assistant_text @s
        ok {"data":{"text":"Hello yourself"}}
    "#

    prompt_sends_images_to_the_model => r#"
        model "I see"
        > create_session @s
        ok
        > prompt @s {"message":"Look","images":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}
        ok
        ev message_start @s {"message":{"role":"user","content":[{"type":"text","text":"Look"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}}
        ev agent_end @s
        request 0 {"messages":["$has",{"role":"user","content":"Look","images":["AAAA"]}]}
    "#

    prompt_during_a_run_must_name_its_delivery => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok
        > prompt @s #again {"message":"$ touch not-this"}
        no Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.
        touch go
        ev agent_end @s
        > get_state @s
        ok {"sessionVersion":1}
    "#

    prompt_as_a_follow_up_waits_for_the_run => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok
        > prompt @s {"message":"$ echo second","streamingBehavior":"followUp"}
        ok {"sessionVersion":2}
        ev extension_ui_request @s {"method":"setWidget","content":["$ echo second"]}
        touch go
        ev agent_end @s
        ev agent_start @s
        ev message_start @s {"message":{"role":"user","content":[{"text":"$ echo second"}]}}
        ev agent_end @s
    "#

    prompt_as_steering_reaches_the_active_run => r#"
        config [approvals]
        config preset = "trusted"
        model [{"call":"sandbox_exec","args":{"command":"touch here; until [ -e go ]; do sleep 0.01; done"}}]
        model "turned"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        until here
        > prompt @s {"message":"turn around","streamingBehavior":"steer"}
        ok {"sessionVersion":2}
        touch go
        ev agent_end @s
        count 1 {"type":"event","event":{"type":"agent_start"}}
        request 1 {"messages":["$has",{"role":"user","content":"turn around"}]}
    "#

    prompt_refuses_an_invalid_message => r#"
        > create_session @s
        ok
        >! prompt @s
        no Validation failed: message: must be a string and is missing
        >! prompt @s {"message":"  "}
        no Validation failed: message: must not be empty
        >! prompt @s {"message":["x"]}
        no Validation failed: message: must be a string
        >! prompt @s {"message":"m","streamingBehavior":"later"}
        no Validation failed: streamingBehavior: must be one of steer, followUp
        > prompt @nobody {"message":"m"}
        no Session nobody not found
    "#

    steer_reaches_the_model_at_its_next_turn => r#"
        config [approvals]
        config preset = "trusted"
        model [{"call":"sandbox_exec","args":{"command":"touch here; until [ -e go ]; do sleep 0.01; done"}}]
        model "done"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        until here
        > steer @s {"message":"faster","images":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}
        ok {"data":"$none","sessionVersion":2}
        touch go
        ev message_start @s {"message":{"role":"user","content":["$has",{"text":"faster"}]}}
        ev agent_end @s
        request 1 {"messages":["$has",{"role":"user","content":"faster","images":["AAAA"]}]}
    "#

    steer_without_a_run_starts_one => r#"
        > create_session @s
        ok
        > steer @s {"message":"$ echo hello"}
        ok {"sessionVersion":1}
        ev agent_start @s
        ev agent_end @s
        >! steer @s
        no Validation failed: message: must be a string and is missing
        > steer @nobody {"message":"m"}
        no Session nobody not found
    "#

    steer_overtakes_a_shell_command => r#"
        config [approvals]
        config preset = "trusted"
        model [{"call":"sandbox_exec","args":{"command":"touch here; until [ -e go ]; do sleep 0.01; done"}}]
        model "done"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        until here
        > bash @s #slow {"command":"touch there; until [ -e go ]; do sleep 0.01; done"}
        until there
        > steer @s #steer {"message":"now"}
        ok #steer
        never {"type":"command_finished","data":{"commandId":"slow"}}
        touch go
        ok #slow
        ev agent_end @s
    "#

    follow_up_waits_for_the_run => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok
        > follow_up @s {"message":"$ touch after"}
        ok {"data":"$none","sessionVersion":2}
        touch go
        ev agent_end @s
        ev agent_start @s
        ev agent_end @s
        until after
    "#

    follow_ups_run_in_order => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok
        > follow_up @s {"message":"$ echo one"}
        ok
        > follow_up @s {"message":"$ echo two"}
        ok
        ev extension_ui_request @s {"method":"setWidget","key":"queue","content":["$ echo one","$ echo two"],"placement":"belowEditor"}
        touch go
        ev message_start @s {"message":{"role":"user","content":[{"text":"$ echo one"}]}}
        ev message_start @s {"message":{"role":"user","content":[{"text":"$ echo two"}]}}
        ev agent_end @s
    "#

    follow_up_without_a_run_starts_one => r#"
        > create_session @s
        ok
        > follow_up @s {"message":"$ true"}
        ok
        ev agent_end @s
        >! follow_up @s {"message":7}
        no Validation failed: message: must be a string
        > follow_up @nobody {"message":"m"}
        no Session nobody not found
    "#

    abort_ends_the_run => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ touch here; until [ -e never ]; do sleep 0.01; done"}
        ok
        until here
        > abort @s
        ok {"data":"$none","sessionVersion":2}
        ev agent_end @s {"messages":["$has",{"role":"assistant","stopReason":"aborted"}]}
        > get_state @s
        ok {"data":{"isStreaming":false}}
    "#

    abort_ends_a_turn_of_a_model => r#"
        model [{"say":"I begin"},"stall"]
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        ev message_update @s {"assistantMessageEvent":{"type":"text_delta","delta":"$~I beg"}}
        > abort @s
        ok
        ev message_end @s {"message":{"role":"assistant","content":[{"type":"text","text":"$~I beg"}],"stopReason":"aborted"}}
        ev agent_end @s
    "#

    abort_with_nothing_to_do_succeeds => r#"
        > create_session @s
        ok
        > abort @s
        ok {"sessionVersion":1}
        > abort @nobody
        no Session nobody not found
    "#

    steer_interrupts_the_answer_of_the_model_and_keeps_the_part => r#"
        model [{"say":"I begin"},"stall"]
        model "turned"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        ev message_update @s {"assistantMessageEvent":{"type":"text_delta","delta":"$~I beg"}}
        > steer @s {"message":"turn around"}
        ok
        ev message_end @s {"message":{"role":"assistant","content":[{"type":"text","text":"I begin"}]}}
        ev agent_end @s
        count 1 {"type":"event","event":{"type":"agent_start"}}
        request 1 {"messages":[{"role":"system"},{"role":"user","content":"work"},{"role":"assistant","content":"I begin"},{"role":"user","content":"turn around"}]}
    "#

    steer_interrupts_a_model_that_has_not_answered => r#"
        model {"never":true}
        model "turned"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        requests 1
        > steer @s {"message":"turn around"}
        ok
        ev agent_end @s
        request 1 {"messages":[{"role":"system"},{"role":"user","content":"work"},{"role":"user","content":"turn around"}]}
    "#

    steer_skips_calls_that_have_not_started_and_lets_running_ones_finish => r#"
        config [approvals]
        config preset = "trusted"
        model [{"call":"sandbox_exec","id":"call_1","args":{"command":"touch here; until [ -e go ]; do sleep 0.01; done; touch finished"}},{"call":"sandbox_exec","id":"call_2","args":{"command":"touch skipped"}}]
        model [{"call":"sandbox_exec","id":"call_3","args":{"command":"[ -e finished ] && [ ! -e skipped ] && touch right"}}]
        model "turned"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        until here
        > steer @s {"message":"turn around"}
        ok
        touch go
        ev agent_end @s
        until right
    "#
}
