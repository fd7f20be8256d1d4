//! Section 17.2, session management: state, messages, models, thinking, names.

transcripts! {
    get_state_returns_the_state_of_the_session => r#"
        > create_session @s
        ok
        > get_state @s
        ok {"data":{"sessionId":"s","sessionName":"$none","sessionFile":"$~.pi/agent/sessions/","model":"$none","thinkingLevel":"off","isStreaming":false,"messageCount":0,"createdAt":"$_"},"sessionVersion":0}
        > get_state @nobody
        no Session nobody not found
    "#

    get_state_names_the_model => r#"
        model "unused"
        > create_session @s
        ok
        > get_state @s
        ok {"data":{"model":{"id":"test-model","provider":"ollama","contextWindow":32768}}}
    "#

    get_messages_returns_the_conversation => r#"
        > create_session @s
        ok
        > get_messages @s
        ok {"data":{"messages":[]}}
        > prompt @s {"message":"Some words\n\n$ echo hello"}
        ok
        ev agent_end @s {"messages":"$all"}
        > get_messages @s
        ok {"data":{"messages":"$all"}}
        > get_messages @s
        ok {"data":{"messages":["$has",{"role":"user","content":[{"type":"text","text":"$~Some words"}]},{"role":"toolResult","isError":false,"content":[{"type":"text","text":"$~hello"}]}]}}
        > get_state @s
        ok {"data":{"messageCount":"$_","isStreaming":false}}
        > get_messages @nobody
        no Session nobody not found
    "#

    set_model_selects_another_model => r#"
        model "from the other"
        > create_session @s
        ok
        > set_model @s {"provider":"ollama","modelId":"other-model"}
        ok {"data":{"model":{"id":"other-model","provider":"ollama"}},"sessionVersion":1}
        > get_state @s
        ok {"data":{"model":{"id":"other-model"}}}
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s
        request 0 {"model":"other-model"}
    "#

    set_model_refuses_a_provider_that_is_not_configured => r#"
        > create_session @s
        ok
        > set_model @s {"provider":"nobody","modelId":"m"}
        no Model not found: nobody/m
        >! set_model @s {"provider":"ollama"}
        no Validation failed: modelId: must be a string and is missing
        >! set_model @s {"modelId":"m"}
        no Validation failed: provider: must be a string and is missing
        > set_model @nobody {"provider":"ollama","modelId":"m"}
        no Session nobody not found
    "#

    cycle_model_selects_each_model_in_turn => r#"
        model "unused"
        > create_session @s
        ok
        > set_model @s {"provider":"ollama","modelId":"not listed"}
        ok
        > cycle_model @s
        ok {"data":{"model":{"id":"test-model"},"thinkingLevel":"off","isScoped":false}}
        > get_state @s
        ok {"data":{"model":{"id":"test-model"}}}
    "#

    cycle_model_with_a_single_model_changes_nothing => r#"
        model "unused"
        > create_session @s
        ok
        > cycle_model @s {"direction":"backward"}
        ok {"data":null,"sessionVersion":1}
        >! cycle_model @s {"direction":"sideways"}
        no Validation failed: direction: must be one of forward, backward
        > cycle_model @nobody
        no Session nobody not found
    "#

    set_thinking_level_is_sent_to_the_model => r#"
        model "thought"
        > create_session @s
        ok
        > set_thinking_level @s {"level":"high"}
        ok {"data":"$none","sessionVersion":1}
        > get_state @s
        ok {"data":{"thinkingLevel":"high"}}
        > prompt @s {"message":"hi"}
        ok
        ev agent_end @s
        request 0 {"think":true}
    "#

    set_thinking_level_accepts_only_known_levels => r#"
        > create_session @s
        ok
        > set_thinking_level @s {"level":"minimal"}
        ok
        > set_thinking_level @s {"level":"xhigh"}
        ok
        > get_state @s
        ok {"data":{"thinkingLevel":"xhigh"}}
        > set_thinking_level @s {"level":"none"}
        ok
        > get_state @s
        ok {"data":{"thinkingLevel":"off"}}
        >! set_thinking_level @s {"level":"much"}
        no Validation failed: level: must be one of off, minimal, low, medium, high, xhigh
        >! set_thinking_level @s
        no Validation failed: level: must be one of off, minimal, low, medium, high, xhigh
        > set_thinking_level @nobody {"level":"off"}
        no Session nobody not found
    "#

    cycle_thinking_level_wraps_around => r#"
        model "unused"
        > create_session @s
        ok
        > cycle_thinking_level @s
        ok {"data":{"level":"minimal"}}
        > cycle_thinking_level @s
        ok {"data":{"level":"low"}}
        > set_thinking_level @s {"level":"xhigh"}
        ok
        > cycle_thinking_level @s
        ok {"data":{"level":"off"}}
        > get_state @s
        ok {"data":{"thinkingLevel":"off"},"sessionVersion":4}
    "#

    cycle_thinking_level_without_a_model_has_none => r#"
        > create_session @s
        ok
        > cycle_thinking_level @s
        ok {"data":null,"sessionVersion":1}
        > cycle_thinking_level @nobody
        no Session nobody not found
    "#

    set_session_name_renames => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"Émile & co"}
        ok {"data":"$none","sessionVersion":1}
        ev extension_ui_request @s {"method":"setTitle","title":"Émile & co"}
        > get_state @s
        ok {"data":{"sessionName":"Émile & co"}}
        > list_sessions
        ok {"data":{"sessions":[{"sessionName":"Émile & co"}]}}
    "#

    set_session_name_refuses_an_invalid_name => r#"
        > create_session @s
        ok
        >! set_session_name @s
        no Validation failed: name: must be a string and is missing
        >! set_session_name @s {"name":""}
        no Validation failed: name: must not be empty
        >! set_session_name @s {"name":"two\nlines"}
        no Validation failed: name: must not contain control characters
        > set_session_name @nobody {"name":"n"}
        no Session nobody not found
    "#

    settings_survive_a_restart => r#"
        model "unused"
        > create_session @s
        ok
        > set_thinking_level @s {"level":"low"}
        ok
        > set_model @s {"provider":"ollama","modelId":"other"}
        ok
        > set_session_name @s {"name":"kept"}
        ok {"sessionVersion":3}
        kill
        > get_state @s
        ok {"data":{"thinkingLevel":"low","model":{"id":"other"},"sessionName":"kept"},"sessionVersion":3}
    "#

    a_model_names_its_api => r#"
        config [providers.claude]
        config kind = "anthropic"
        config model = "opus"
        config [providers.local]
        config kind = "openai"
        config base_url = "http://127.0.0.1:9/v1"
        config model = "small"
        model "unused"
        > create_session @s
        ok
        > get_state @s
        ok {"data":{"model":{"id":"test-model","provider":"ollama","api":"ollama"}}}
        > set_model @s {"provider":"local","modelId":"small"}
        ok {"data":{"model":{"api":"openai-completions"}}}
        > set_model @s {"provider":"claude","modelId":"opus"}
        ok {"data":{"model":{"api":"anthropic-messages"}}}
    "#
}
