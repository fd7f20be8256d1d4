//! Section 20: session files, and what is refused about them.

transcripts! {
    a_session_is_written_to_its_file => r#"
        model "Hello there"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"Good morning"}
        ok
        ev agent_end @s
        until ${file} Good morning
        until ${file} Hello there
        > list_stored_sessions
        ok {"sessionVersion":"$none","data":{"sessions":[{"sessionId":"s","sessionFile":"$file","sessionPath":"$file","cwd":"${home}/work","fileExists":true,"messageCount":2,"createdAt":"$_"}]}}
    "#

    list_stored_sessions_is_empty_at_first => r#"
        > list_stored_sessions
        ok {"data":{"sessions":[]}}
    "#

    a_name_is_stored => r#"
        model "Hello"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"Good morning"}
        ok
        ev agent_end @s
        > set_session_name @s {"name":"Breakfast"}
        ok
        until ${file} Breakfast
        > list_stored_sessions
        ok {"data":{"sessions":[{"sessionName":"Breakfast"}]}}
    "#

    a_deleted_session_can_be_loaded_again => r#"
        model "Hello there"
        model "And again"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"Good morning"}
        ok
        ev agent_end @s
        until ${file} Hello there
        > delete_session @s
        ok
        until ${file} Good morning
        > load_session {"sessionPath":"${file}"}
        ok {"data":{"sessionId":"s","sessionInfo":{"sessionId":"s","messageCount":2}},"sessionVersion":0}
        > get_messages @s
        ok {"data":{"messages":[{"role":"user"},{"role":"assistant","content":[{"text":"Hello there"}]}]}}
        > prompt @s {"message":"Once more"}
        ok {"sessionVersion":1}
        ev agent_end @s
        request 1 {"messages":["$has",{"role":"user","content":"Good morning"},{"role":"user","content":"Once more"}]}
    "#

    a_file_of_another_program_is_loaded => r#"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"from before\"}],\"timestamp\":1767225601000}}\n"
        > load_session {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok {"data":{"sessionId":"stored","sessionInfo":{"sessionId":"stored"}},"sessionVersion":0}
        > get_messages @stored
        ok {"data":{"messages":["$has",{"role":"user","content":[{"type":"text","text":"from before"}]}]},"sessionVersion":0}
        > set_session_name @stored {"name":"n"}
        ok {"sessionVersion":1}
    "#

    a_file_is_loaded_under_the_requested_id => r#"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        > load_session @mine {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        ok {"data":{"sessionId":"mine","sessionInfo":{"sessionId":"mine"}},"sessionVersion":0}
        > get_state @stored
        no Session stored not found
    "#

    load_session_subscribes => r#"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        ok
        > prompt @stored {"message":"$ true"}
        ok
        ev agent_end @stored
    "#

    loading_an_existing_session_is_refused_and_leaves_it_unchanged => r#"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        > create_session @s
        ok
        > set_session_name @s {"name":"mine"}
        ok
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        no Session s already exists
        > load_session @s #named {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        no Session s already exists
        > get_state @s
        ok {"data":{"sessionName":"mine"},"sessionVersion":1}
    "#

    a_path_outside_the_directories_is_refused => r#"
        file ~/elsewhere/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        > load_session {"sessionPath":"${home}/elsewhere/old.jsonl"}
        no ~sessionPath must be under an allowed session directory
        > load_session {"sessionPath":"/etc/passwd"}
        no ~sessionPath must be under an allowed session directory
        > load_session {"sessionPath":"${home}/.pi/agent/sessions-not/old.jsonl"}
        no ~sessionPath must be under an allowed session directory
    "#

    a_path_with_parent_components_is_refused => r#"
        >! load_session #a {"sessionPath":"/home/x/.pi/agent/sessions/../../../../etc/passwd"}
        no ~Validation failed: sessionPath: sessionPath contains potentially dangerous path components
        >! load_session #b {"sessionPath":"/x/.pi/sessions/a\u0000b"}
        no ~Validation failed: sessionPath: sessionPath contains potentially dangerous path components
        >! load_session #c {"sessionPath":"relative/.pi/sessions/x.jsonl"}
        no Validation failed: sessionPath: sessionPath must be an absolute path
        >! load_session #d
        no Validation failed: sessionPath: must be a string and is missing
        >! switch_session_file @s #e {"sessionPath":"/x/.pi/sessions/../x"}
        no ~Validation failed: sessionPath: sessionPath contains potentially dangerous path components
        never {"type":"command_accepted"}
    "#

    a_link_is_not_followed => r#"
        file ~/elsewhere/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        file ~/.pi/agent/sessions/good.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"good\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n"
        > health_check
        ok
        link ~/.pi/agent/sessions/bad.jsonl ${home}/elsewhere/old.jsonl
        link ~/.pi/agent/sessions/folder ${home}/elsewhere
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/bad.jsonl"}
        no ~sessionPath must be under an allowed session directory
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/folder/old.jsonl"}
        no ~sessionPath must be under an allowed session directory
        > list_stored_sessions
        ok {"data":{"sessions":[{"sessionId":"good"}]}}
    "#

    a_missing_path_and_a_directory_are_refused => r#"
        file ~/.pi/agent/sessions/torn.jsonl "this is no session\n"
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/none.jsonl"}
        no ~does not exist
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/torn.jsonl"}
        no ~is not a session file
        > load_session {"sessionPath":"${home}/.pi/agent/sessions"}
        is {"success":false}
        > list_stored_sessions
        ok {"data":{"sessions":[]}}
    "#

    switch_session_file_continues_from_a_file => r#"
        model "Mine"
        model "Answer"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"from before\"}],\"timestamp\":1767225601000}}\n"
        > create_session @s
        ok
        > prompt @s {"message":"left behind"}
        ok
        ev agent_end @s
        > switch_session_file @s {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        ok {"data":{"cancelled":false},"sessionVersion":2}
        > get_messages @s
        ok {"data":{"messages":["$has",{"role":"user","content":[{"text":"from before"}]}]},"sessionVersion":2}
        > prompt @s {"message":"and now"}
        ok {"sessionVersion":3}
        ev message_start @s {"message":{"role":"user","content":[{"text":"and now"}]}}
        ev agent_end @s
        request 1 {"messages":["$has",{"role":"user","content":"from before"},{"role":"user","content":"and now"}]}
    "#

    switch_session_file_needs_a_session_and_a_file => r#"
        > create_session @s
        ok
        > switch_session_file @s {"sessionPath":"/etc/passwd"}
        no ~sessionPath must be under an allowed session directory
        >! switch_session_file @s
        no Validation failed: sessionPath: must be a string and is missing
        > switch_session_file @nobody {"sessionPath":"${home}/.pi/agent/sessions/x.jsonl"}
        no Session nobody not found
        > get_state @s
        ok {"sessionVersion":0}
    "#

    a_stored_session_has_its_model_and_thinking_level => r#"
        model "Hello"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > set_thinking_level @s {"level":"high"}
        ok
        > prompt @s {"message":"Good morning"}
        ok
        ev agent_end @s
        until ${file} Hello
        > list_stored_sessions
        ok {"data":{"sessions":[{"sessionId":"s","thinkingLevel":"high","model":{"id":"test-model","provider":"ollama"}}]}}
    "#

    a_path_that_cannot_be_loaded_is_refused_with_both_the_rule_and_the_reason => r#"
        file ~/.pi/agent/sessions/torn.jsonl "this is no session\n"
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/none.jsonl"}
        no ~sessionPath must be
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/none.jsonl"}
        no ~none.jsonl does not exist
        > load_session {"sessionPath":"${home}/.pi/agent/sessions/torn.jsonl"}
        no ~sessionPath must be
        > load_session {"sessionPath":"/etc/passwd"}
        no ~sessionPath must be under an allowed session directory: /etc/passwd
        >! load_session {"sessionPath":"/x/.pi/sessions/../x"}
        no ~sessionPath contains potentially dangerous path components
        >! load_session {"sessionPath":"/x/.pi/sessions/../x"}
        no ~sessionPath must be
    "#
}
