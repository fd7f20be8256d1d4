//! One session, two protocols: both see all changes, in the same order.

transcripts! {
    a_session_of_pi_is_a_session_of_push => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"shared"}
        ok
        push list_sessions {} -> {"sessions":["$has",{"sessionId":"s","state":"idle"}]}
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > prompt @s {"message":"$ echo hello"}
        ok
        pushev user_message {"sessionId":"s","payload":{"text":"$ echo hello"}}
        pushev run_complete {"payload":{"outcome":"success"}}
        ev agent_end @s
    "#

    a_session_of_push_is_a_session_of_pi => r#"
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"$id"}]}}
        > switch_session @${id}
        ok {"data":{"sessionInfo":{"sessionId":"$id","sessionFile":"$none"}}}
        push send_user_message {"sessionId":"${id}","text":"$ echo from push"}
        ev agent_start @${id}
        ev message_start @${id} {"message":{"role":"user","content":[{"text":"$ echo from push"}]}}
        ev agent_end @${id}
        > get_messages @${id}
        ok {"data":{"messages":["$has",{"role":"toolResult","content":[{"text":"from push\n"}]}]}}
    "#

    a_question_in_pi_is_answered_by_push => r#"
        > create_session @s
        ok
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > prompt @s {"message":"$? touch approved"}
        ok {"sessionVersion":1}
        pushev approval_required {"payload":{"approvalId":"$gate"}}
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        push submit_approval {"sessionId":"s","approvalId":"${gate}","decision":"approve"}
        ev extension_ui_request @s {"method":"setStatus","key":"$gate","text":"$~approved"}
        ev agent_end @s
        pushev run_complete {"payload":{"outcome":"success"}}
        until approved
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":false}}
        no Request ${gate} already settled
    "#

    a_question_in_push_is_answered_by_pi => r#"
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        push send_user_message {"sessionId":"${id}","text":"$? touch approved"}
        pushev approval_required {"payload":{"approvalId":"$gate"}}
        > switch_session @${id}
        ok
        ev extension_ui_request @${id} {"requestId":"$gate","method":"confirm"}
        > extension_ui_response @${id} {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok
        pushev approval_received {"payload":{"approvalId":"$gate","decision":"approve"}}
        pushev run_complete {"payload":{"outcome":"success"}}
        until approved
    "#

    a_run_of_push_is_aborted_by_pi => r#"
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        push send_user_message {"sessionId":"${id}","text":"$ touch here; until [ -e never ]; do sleep 0.01; done"}
        until here
        > switch_session @${id}
        ok {"data":{"sessionInfo":{"isStreaming":true}}}
        > abort @${id}
        ok
        ev agent_end @${id}
        pushev run_complete {"payload":{"outcome":"cancelled"}}
    "#

    a_run_of_pi_is_cancelled_by_push => r#"
        > create_session @s
        ok
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > prompt @s {"message":"$ touch here; until [ -e never ]; do sleep 0.01; done"}
        ok
        until here
        push cancel_run {"sessionId":"s"}
        ev agent_end @s {"messages":["$has",{"role":"assistant","stopReason":"aborted"}]}
        pushev run_complete {"payload":{"outcome":"cancelled"}}
    "#

    a_change_by_push_advances_the_version_for_pi => r#"
        > create_session @s
        ok
        push rename_session {"sessionId":"s","name":"by push"}
        ev extension_ui_request @s {"method":"setTitle","title":"by push"}
        > get_state @s
        ok {"data":{"sessionName":"by push"},"sessionVersion":1}
        > set_session_name @s {"name":"by pi","ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
    "#

    push_gets_the_messages_of_the_fork_in_which_pi_continues_and_of_its_parent => r#"
        model "One"
        model "Two"
        model "Three"
        > create_session @s
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > prompt @s {"message":"second"}
        ok
        ev agent_end @s
        push get_session_messages {"sessionId":"s"} -> {"messages":[{"text":"first"},{"text":"One"},{"text":"second"},{"text":"Two"}],"done":true}
        > get_fork_messages @s
        ok {"data":{"messages":[{"text":"first"},{"entryId":"$second","text":"second"}]}}
        > fork @s {"entryId":"${second}"}
        ok {"data":{"sessionId":"$child"}}
        push get_session_messages {"sessionId":"${child}"} -> {"messages":[{"text":"first"},{"text":"One"}],"done":true}
        > prompt @s {"message":"instead"}
        ok
        ev agent_end @s
        push get_session_messages {"sessionId":"${child}"} -> {"messages":[{"text":"first"},{"text":"One"},{"text":"instead"},{"text":"Three"}],"done":true}
        push get_session_messages {"sessionId":"s"} -> {"messages":[{"text":"first"},{"text":"One"},{"text":"second"},{"text":"Two"}],"done":true}
        kill
        push get_session_messages {"sessionId":"${child}"} -> {"messages":[{"text":"first"},{"text":"One"},{"text":"instead"},{"text":"Three"}],"done":true}
        push get_session_messages {"sessionId":"s"} -> {"messages":[{"text":"first"},{"text":"One"},{"text":"second"},{"text":"Two"}],"done":true}
    "#

    push_receives_the_events_of_a_shell_command_of_pi => r#"
        > create_session @s
        ok
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > bash @s {"command":"echo beside"}
        ok {"data":{"output":"beside\n"}}
        pushev tool_result {"payload":{"exitCode":0}}
    "#

    both_protocols_show_the_same_state_after_a_restart => r#"
        > create_session @s
        ok
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        > prompt @s {"message":"$ echo first\n\n$? touch approved\n\n$ echo last"}
        ok
        pushev approval_required {"payload":{"approvalId":"$gate"}}
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        kill
        > switch_session @s
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        push attach_session {"sessionId":"s","lastSeenSeq":0}
        push submit_approval {"sessionId":"s","approvalId":"${gate}","decision":"approve"}
        ev tool_execution_end @s
        ev agent_end @s
        pushev run_complete {"payload":{"outcome":"success"}}
        until approved
        > get_messages @s
        ok {"data":{"messages":["$has",{"role":"toolResult","content":[{"text":"first\n"}]},{"role":"toolResult","content":[{"text":"last\n"}]}]}}
    "#

    a_session_that_push_ended_is_not_found => r#"
        push start_session {"cwd":"${home}/work"} -> {"sessionId":"$id"}
        > switch_session @${id}
        ok
        push end_session {"sessionId":"${id}"}
        > prompt @${id} {"message":"x"}
        is {"success":false}
    "#
}
