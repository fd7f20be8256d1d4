//! Section 19: the events of a run and their order.

transcripts! {
    the_events_of_a_run_are_complete_and_in_order => r#"
        model [{"think":"hm"},{"say":"Hello "},{"say":"there"}]
        > create_session @s
        ok
        > prompt @s {"message":"hi"}
        ok
        ev agent_start @s
        ev turn_start @s
        ev message_start @s {"message":{"role":"user","content":[{"type":"text","text":"hi"}]}}
        ev message_end @s {"message":{"role":"user"}}
        ev message_start @s {"message":{"role":"assistant","content":[]}}
        ev message_update @s {"assistantMessageEvent":{"type":"thinking_start","contentIndex":0}}
        ev message_update @s {"assistantMessageEvent":{"type":"thinking_end","content":"hm"}}
        ev message_update @s {"assistantMessageEvent":{"type":"text_start","contentIndex":1}}
        ev message_update @s {"assistantMessageEvent":{"type":"text_delta","delta":"$_"}}
        ev message_update @s {"assistantMessageEvent":{"type":"text_end","content":"Hello there"}}
        ev message_end @s {"message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Hello there"}],"stopReason":"stop","provider":"ollama","model":"test-model"}}
        ev turn_end @s {"message":{"role":"assistant"},"toolResults":[]}
        ev agent_end @s {"messages":[{"role":"user"},{"role":"assistant"}]}
    "#

    the_events_of_a_tool_come_between_two_turns => r#"
        file notes.txt "some notes"
        model [{"say":"Looking"},{"call":"sandbox_read_file","args":{"path":"notes.txt"}}]
        model "Seen"
        > create_session @s
        ok
        > prompt @s {"message":"look"}
        ok
        ev turn_start @s
        ev message_update @s {"assistantMessageEvent":{"type":"toolcall_end","toolCall":{"type":"toolCall","id":"$call","name":"sandbox_read_file","arguments":{"path":"notes.txt"}}}}
        ev message_end @s {"message":{"role":"assistant","stopReason":"toolUse","content":[{"type":"text","text":"Looking"},{"type":"toolCall","id":"$call"}]}}
        ev tool_execution_start @s {"toolCallId":"$call","toolName":"sandbox_read_file","args":{"path":"notes.txt"}}
        ev tool_execution_end @s {"toolCallId":"$call","toolName":"sandbox_read_file","result":{"content":[{"type":"text","text":"$~some notes"}]},"isError":false}
        ev message_end @s {"message":{"role":"toolResult","toolCallId":"$call","isError":false}}
        ev turn_end @s {"toolResults":[{"toolCallId":"$call"}]}
        ev turn_start @s
        ev turn_end @s {"toolResults":[]}
        ev agent_end @s {"messages":[{"role":"user"},{"role":"assistant"},{"role":"toolResult"},{"role":"assistant"}]}
    "#

    tool_output_is_streamed_while_the_tool_runs => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ echo early; until [ -e go ]; do sleep 0.01; done; echo late"}
        ok
        ev tool_execution_start @s {"toolCallId":"$call"}
        ev tool_execution_update @s {"toolCallId":"$call","partialResult":{"content":[{"type":"text","text":"$~early"}]}}
        touch go
        ev tool_execution_end @s {"toolCallId":"$call","result":{"content":[{"text":"early\nlate\n"}]}}
        ev agent_end @s
    "#

    a_failed_tool_is_reported_as_an_error => r#"
        model [{"call":"sandbox_read_file","args":{"path":"nowhere.txt"}}]
        model "It is not there"
        > create_session @s
        ok
        > prompt @s {"message":"look"}
        ok
        ev tool_execution_end @s {"isError":true}
        ev message_end @s {"message":{"role":"toolResult","isError":true}}
        ev agent_end @s
    "#

    a_failed_run_reports_the_reason => r#"
        env PUSH_MODEL_ATTEMPTS=1
        model {"status":404,"body":"{\"error\":{\"message\":\"model 'test-model' not found\"}}"}
        > create_session @s
        ok
        > prompt @s {"message":"hi"}
        ok
        ev message_end @s {"message":{"role":"assistant","stopReason":"error","errorMessage":"$_"}}
        ev agent_end @s
        > get_state @s
        ok {"data":{"isStreaming":false}}
    "#

    a_late_subscriber_receives_the_remaining_events => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ touch here; until [ -e go ]; do sleep 0.01; done"}
        ok
        until here
        B: > switch_session @s
        B: ok {"data":{"sessionInfo":{"isStreaming":true}}}
        touch go
        B: ev tool_execution_end @s
        B: ev agent_end @s
        B: never {"type":"event","event":{"type":"agent_start"}}
    "#

    two_subscribers_receive_the_same_events => r#"
        model "Hello"
        > create_session @s
        ok
        B: > switch_session @s
        B: ok
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s {"messages":"$told"}
        B: ev agent_start @s
        B: ev turn_start @s
        B: ev message_end @s {"message":{"role":"assistant","content":[{"text":"Hello"}]}}
        B: ev agent_end @s {"messages":"$told"}
    "#

    a_warning_is_no_error => r#"
        > create_session @s
        ok
        > prompt @s {"message":"only words"}
        ok
        ev agent_end @s
        > get_state @s
        ok {"data":{"isStreaming":false,"messageCount":"$_"}}
    "#
}
