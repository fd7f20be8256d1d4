//! Child sessions: `fork` and `new_session` start one, and its parent stays as it is.

transcripts! {
    a_fork_is_a_session_of_its_own_and_its_parent_keeps_its_messages => r#"
        model "One"
        model "Two"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > prompt @s {"message":"second"}
        ok
        ev agent_end @s
        > get_fork_messages @s
        ok {"data":{"messages":[{"text":"first"},{"entryId":"$second"}]}}
        > fork @s {"entryId":"${second}"}
        ok {"data":{"text":"second","cancelled":false,"sessionId":"$child"}}
        < {"type":"session_created","data":{"sessionId":"${child}"}}
        > list_sessions
        ok {"data":{"sessions":["$has",{"sessionId":"s","messageCount":4},{"sessionId":"${child}","messageCount":2}]}}
        > get_state @s
        ok {"data":{"sessionId":"${child}","sessionFile":"$forked","messageCount":2}}
        contains ${forked} "parentSession":"${first}" / One
        B: > get_state @s
        B: ok {"data":{"sessionId":"s","sessionFile":"${first}","messageCount":4}}
        push list_sessions {} -> {"sessions":["$has",{"sessionId":"${child}","parentSessionId":"s"}]}
        > prompt @s {"message":"instead"}
        ok
        ev agent_end @s
        request 2 {"messages":[{"role":"system"},{"content":"first"},{"content":"One"},{"content":"instead"}]}
        B: > get_messages @s
        B: ok {"data":{"messages":[{"role":"user"},{"role":"assistant"},{"role":"user","content":[{"text":"second"}]},{"role":"assistant","content":[{"text":"Two"}]}]},"sessionVersion":2}
        never {"type":"event","sessionId":"${child}"}
        B: > switch_session @${child}
        B: ok {"data":{"sessionInfo":{"messageCount":4}}}
    "#

    a_command_sent_together_with_a_fork_reaches_the_child => r#"
        model "One"
        model "Two"
        > create_session @s
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > new_session @s #n
        > prompt @s #p {"message":"second"}
        ok #n {"data":{"sessionId":"$child"}}
        ok #p
        ev agent_end @s
        request 1 {"messages":[{"role":"system"},{"content":"second"}]}
        B: > get_messages @s
        B: ok {"data":{"messages":[{"role":"user"},{"role":"assistant","content":[{"text":"One"}]}]}}
    "#

    a_repeated_fork_starts_no_second_child => r#"
        model "One"
        > create_session @s
        ok
        > prompt @s {"message":"first"}
        ok
        ev agent_end @s
        > new_session @s #n =key
        ok {"data":{"sessionId":"$child"}}
        > new_session @s #again =key
        ok #again {"data":{"sessionId":"${child}"},"replayed":true}
        kill
        > new_session @s #n =key
        ok #n {"data":{"sessionId":"${child}"},"replayed":true}
        > list_sessions
        ok {"data":{"sessions":[{"sessionId":"s"},{"sessionId":"${child}"}]}}
    "#

    a_fork_can_be_forked_and_outlives_its_parents => r#"
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
        ok {"data":{"messages":[{"text":"first"},{"entryId":"$second"}]}}
        > fork @s #one {"entryId":"${second}"}
        ok {"data":{"sessionId":"$child"}}
        > get_fork_messages @s
        ok {"data":{"messages":[{"entryId":"$first","text":"first"}]}}
        > fork @s #two {"entryId":"${first}"}
        ok {"data":{"text":"first","sessionId":"$grandchild"}}
        push list_sessions {} -> {"sessions":["$has",{"sessionId":"${grandchild}","parentSessionId":"${child}"}]}
        cli delete s --yes
        B: > get_messages @${child}
        B: ok {"data":{"messages":[{"role":"user"},{"role":"assistant","content":[{"text":"One"}]}]}}
        cli delete ${child} --yes
        > get_messages @s
        ok {"data":{"messages":[]}}
    "#

    an_entry_of_another_program_is_imported_into_a_fork_once => r#"
        model "One"
        model "Two"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${first} One
        > prompt @s {"message":"asked second"}
        ok
        until ${first} Two
        > get_fork_messages @s
        ok {"data":{"messages":[{"text":"asked first"},{"entryId":"$second"}]}}
        > fork @s {"entryId":"${second}"}
        ok {"data":{"sessionId":"$child"}}
        > get_state @s
        ok {"data":{"sessionFile":"$fork"}}
        foreign ${fork} said elsewhere / answered elsewhere
        kill
        > prompt @${child} {"message":"asked third"}
        ok
        until ${fork} Three
        contains ${fork} asked first / One / said elsewhere / answered elsewhere / asked third / Three
        request 2 {"messages":[{"role":"system"},{"content":"asked first"},{"content":"One"},{"content":"said elsewhere"},{"content":"answered elsewhere"},{"content":"asked third"}]}
    "#
}
