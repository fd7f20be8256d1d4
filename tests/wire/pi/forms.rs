//! Section 18, the five methods: questions of a model, and the results that it receives.

transcripts! {
    a_selection_is_sent_to_the_model => r#"
        model [{"call":"ask_user","args":{"method":"select","title":"Which colour?","options":["red","green"]}}]
        model "Red it is"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok {"sessionVersion":1}
        ev extension_ui_request @s {"requestId":"$gate","method":"select","title":"Which colour?","options":["red","green"],"timeout":"$_"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"select","value":"blue"}}
        no Validation failed: response.value: must be one of the options
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"select","value":"red"}}
        ok {"sessionVersion":2}
        ev tool_execution_end @s {"toolName":"ask_user","isError":false,"result":{"content":[{"text":"\"red\""}]}}
        ev agent_end @s
        request 1 {"messages":["$has",{"role":"tool","content":"$~red"}]}
    "#

    a_confirmation_is_sent_to_the_model => r#"
        model [{"call":"ask_user","args":{"method":"confirm","title":"Really?"}}]
        model "Then not"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm","title":"Really?"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":false}}
        ok
        ev tool_execution_end @s {"isError":false,"result":{"content":[{"text":"false"}]}}
        ev agent_end @s
    "#

    a_line_of_input_is_sent_to_the_model => r#"
        model [{"call":"ask_user","args":{"method":"input","title":"Your name?","placeholder":"Ann"}}]
        model "Hello Bo"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"input","title":"Your name?","placeholder":"Ann"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"editor","value":"Bo"}}
        no Validation failed: response.method: must be 'input' or 'cancelled' to match the request
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"input","value":"Bo"}}
        ok
        ev tool_execution_end @s {"result":{"content":[{"text":"\"Bo\""}]}}
        ev agent_end @s
    "#

    an_edited_text_is_sent_to_the_model => r#"
        model [{"call":"ask_user","args":{"method":"editor","title":"Write it","prefill":"Dear"}}]
        model "Thanks"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"editor","title":"Write it","prefill":"Dear"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"editor","value":"Dear\nyou"}}
        ok
        ev tool_execution_end @s {"result":{"content":[{"text":"\"Dear\\nyou\""}]}}
        ev agent_end @s
    "#

    the_answers_of_an_interview_are_sent_to_the_model => r#"
        model [{"call":"ask_user","args":{"method":"interview","title":"About you","fields":[{"name":"age"},{"name":"pet","options":["cat","dog"]}]}}]
        model "Thanks"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"interview","title":"About you","questions":[{"name":"age"},{"name":"pet","options":["cat","dog"]}],"fields":"$none"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"interview","responses":{"age":"7","pet":"bird"}}}
        is {"success":false}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"interview","responses":{"age":"7","pet":"cat"}}}
        ok
        ev tool_execution_end @s {"isError":false,"result":{"content":[{"text":"$~\"pet\":\"cat\""}]}}
        ev agent_end @s
    "#

    a_dismissed_question_fails_and_the_run_continues => r#"
        model [{"call":"ask_user","args":{"method":"input","title":"Your name?"}}]
        model "Then without"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"input"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"cancelled"}}
        ok
        ev tool_execution_end @s {"isError":true,"result":{"details":{"fault":{"kind":"DISMISSED"}}}}
        ev agent_end @s
        > get_last_assistant_text @s
        ok {"data":{"text":"Then without"}}
    "#

    an_expired_question_fails_and_the_run_continues => r#"
        model [{"call":"ask_user","args":{"method":"input","title":"Your name?","timeoutSeconds":1}}]
        model "Too late"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"input","timeout":1000}
        ev tool_execution_end @s {"isError":true,"result":{"details":{"fault":{"kind":"TIMED_OUT"}}}}
        ev agent_end @s
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"input","value":"late"}}
        no Request ${gate} already settled
    "#

    a_form_is_filled_in_by_push => r#"
        model [{"call":"ask_user","args":{"method":"select","title":"Which colour?","options":["red","green"]}}]
        model "Green it is"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"select"}
        push submit_approval {"sessionId":"s","approvalId":"${gate}","decision":"approve","answer":"green"}
        ev tool_execution_end @s {"result":{"content":[{"text":"\"green\""}]}}
        ev agent_end @s
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"select","value":"red"}}
        no Request ${gate} already settled
    "#

    a_form_is_filled_in_from_the_command_line => r#"
        model [{"call":"ask_user","args":{"method":"input","title":"Your name?"}}]
        model "Hello"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"input"}
        cli approve ${gate} --answer Bo
        ev tool_execution_end @s {"result":{"content":[{"text":"\"Bo\""}]}}
        ev agent_end @s
    "#

    a_form_is_still_pending_after_a_restart => r#"
        model [{"call":"ask_user","args":{"method":"input","title":"Your name?"}}]
        model "Hello Bo"
        > create_session @s
        ok
        > prompt @s {"message":"ask me"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"input"}
        kill
        > switch_session @s
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"input","title":"Your name?"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"input","value":"Bo"}}
        ok
        ev agent_end @s
        > get_last_assistant_text @s
        ok {"data":{"text":"Hello Bo"}}
    "#
}
