//! Section 17.2, other: statistics, HTML export, forks, new conversations, the last text, the context window.

transcripts! {
    get_session_stats_counts_messages => r#"
        model {"steps":[{"say":"Hello"}],"in":100,"out":7}
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s
        > get_session_stats @s
        ok {"data":{"sessionFile":"$file","sessionId":"s","userMessages":1,"assistantMessages":1,"toolCalls":0,"toolResults":0,"totalMessages":2,"tokens":{"input":100,"output":7,"cacheRead":0,"cacheWrite":0,"total":107},"cost":0.0}}
    "#

    get_session_stats_counts_tools => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ echo one\n\n$ echo two"}
        ok
        ev agent_end @s
        > get_session_stats @s
        ok {"data":{"userMessages":1,"toolCalls":2,"toolResults":2,"tokens":{"total":0}}}
        > get_session_stats @nobody
        no Session nobody not found
    "#

    get_context_usage_returns_the_tokens_of_the_last_request => r#"
        config context_window = 1000
        model {"steps":[{"say":"Hello"}],"in":240,"out":10}
        > create_session @s
        ok
        > get_context_usage @s
        ok {"data":{"tokens":null,"contextWindow":1000,"percent":null}}
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s
        > get_context_usage @s
        ok {"data":{"tokens":250,"contextWindow":1000,"percent":25.0},"sessionVersion":1}
    "#

    get_context_usage_without_a_model_is_empty => r#"
        > create_session @s
        ok
        > get_context_usage @s
        ok {"data":null}
        > get_context_usage @nobody
        no Session nobody not found
    "#

    get_last_assistant_text_returns_the_last_message => r#"
        model "One"
        model "Two"
        > create_session @s
        ok
        > get_last_assistant_text @s
        ok {"data":{"text":null}}
        > prompt @s {"message":"a"}
        ok
        ev agent_end @s
        > get_last_assistant_text @s
        ok {"data":{"text":"One"}}
        > prompt @s {"message":"b"}
        ok
        ev agent_end @s
        > get_last_assistant_text @s
        ok {"data":{"text":"Two"}}
        > get_last_assistant_text @nobody
        no Session nobody not found
    "#

    export_html_writes_a_page => r#"
        > create_session @s
        ok
        > prompt @s {"message":"<script>alert(1)</script>"}
        ok
        ev agent_end @s
        > export_html @s
        ok {"data":{"path":"${home}/work/pi-session-s.html"},"sessionVersion":2}
        until pi-session-s.html &lt;script&gt;alert(1)
    "#

    export_html_writes_to_the_given_path_inside_the_directory => r#"
        > create_session @s
        ok
        > export_html @s {"outputPath":"page.html"}
        ok {"data":{"path":"${home}/work/page.html"}}
        until page.html <html
        > export_html @s {"outputPath":"${home}/work/other.html"}
        ok {"data":{"path":"${home}/work/other.html"}}
        until other.html <html
    "#

    export_html_refuses_a_path_outside_the_directory => r#"
        > create_session @s
        ok
        > export_html @s {"outputPath":"${home}/page.html"}
        no Validation failed: outputPath: must be inside the session's directory
        >! export_html @s {"outputPath":"../page.html"}
        no Validation failed: outputPath: outputPath contains potentially dangerous path components
        link out ${home}
        > export_html @s {"outputPath":"out/page.html"}
        no ~the page cannot be written
        > export_html @nobody
        no Session nobody not found
        > get_state @s
        ok {"sessionVersion":0}
    "#

    get_fork_messages_returns_the_messages_of_the_user => r#"
        model "One"
        model "Two"
        > create_session @s
        ok
        > get_fork_messages @s
        ok {"data":{"messages":[]}}
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > prompt @s {"message":"second"}
        ok
        ev agent_end @s
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"$first","text":"first"},{"entryId":"$second","text":"second"}]}}
        > get_fork_messages @nobody
        no Session nobody not found
    "#

    fork_continues_before_a_message => r#"
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
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"$first"},{"entryId":"$second"}]}}
        > fork @s {"entryId":"${second}"}
        ok {"data":{"text":"second","cancelled":false},"sessionVersion":3}
        > get_messages @s
        ok {"data":{"messages":[{"role":"user"},{"role":"assistant","content":[{"text":"One"}]}]}}
        > prompt @s {"message":"third"}
        ok
        ev agent_end @s
        request 2 {"messages":[{"role":"system"},{"role":"user","content":"first"},{"role":"assistant","content":"One"},{"role":"user","content":"third"}]}
    "#

    fork_at_the_first_message_starts_empty => r#"
        model "One"
        > create_session @s
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"$first"}]}}
        > fork @s {"entryId":"${first}"}
        ok {"data":{"text":"first","cancelled":false}}
        > get_messages @s
        ok {"data":{"messages":[]}}
        > fork @s #again {"entryId":"${first}"}
        no Invalid entry ID for forking
    "#

    fork_refuses_an_id_that_is_not_a_message => r#"
        > create_session @s
        ok
        > fork @s {"entryId":"nothing"}
        no Invalid entry ID for forking
        >! fork @s
        no Validation failed: entryId: must be a string and is missing
        > fork @nobody {"entryId":"x"}
        no Session nobody not found
    "#

    fork_while_a_run_is_active_is_refused => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ touch here; until [ -e go ]; do sleep 0.01; done"}
        ok
        until here
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"$entry"}]}}
        > fork @s #f {"entryId":"${entry}"}
        is {"success":false}
        > new_session @s #n
        is {"success":false}
        touch go
        ev agent_end @s
        > get_state @s
        ok {"sessionVersion":1}
    "#

    new_session_starts_empty => r#"
        model "One"
        model "Two"
        > create_session @s
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > new_session @s {"parentSession":"anything"}
        ok {"data":{"cancelled":false},"sessionVersion":2}
        > get_messages @s
        ok {"data":{"messages":[]}}
        > prompt @s {"message":"second"}
        ok
        ev agent_end @s
        request 1 {"messages":[{"role":"system"},{"role":"user","content":"second"}]}
        > new_session @nobody
        no Session nobody not found
    "#

    a_fork_survives_a_restart => r#"
        model "One"
        model "Two"
        > create_session @s
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > prompt @s {"message":"second"}
        ok
        ev agent_end @s
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"$first"},{"entryId":"$second"}]}}
        > fork @s {"entryId":"${second}"}
        ok {"data":{"sessionId":"$child"},"sessionVersion":3}
        kill
        > get_messages @${child}
        ok {"data":{"messages":[{"role":"user"},{"role":"assistant","content":[{"text":"One"}]}]},"sessionVersion":3}
        > get_fork_messages @${child}
        ok {"data":{"messages":[{"entryId":"${first}"}]}}
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"${first}"},{"entryId":"${second}"}]},"sessionVersion":2}
    "#

    new_session_has_no_name_and_keeps_its_model_and_its_thinking => r#"
        model "One"
        > create_session @s
        ok
        > set_session_name @s {"name":"the first"}
        ok
        > set_thinking_level @s {"level":"high"}
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > new_session @s
        ok {"data":{"cancelled":false,"sessionId":"$child"},"sessionVersion":4}
        > get_state @s
        ok {"data":{"sessionId":"${child}","sessionName":"$none","messageCount":0,"isStreaming":false,"thinkingLevel":"high","model":{"id":"test-model"}},"sessionVersion":4}
        kill
        > get_state @${child}
        ok {"data":{"sessionName":"$none","messageCount":0,"thinkingLevel":"high"},"sessionVersion":4}
        > get_state @s
        ok {"data":{"sessionName":"the first","messageCount":2},"sessionVersion":3}
    "#
}
