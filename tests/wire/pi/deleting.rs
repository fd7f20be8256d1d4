//! Which session files are deleted with a session: those created for it, and imported ones only on request.

transcripts! {
    push_delete_removes_the_file_that_was_created_for_the_session_and_not_that_of_its_child => r#"
        model "One"
        model "Two"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${first} One
        > new_session @s
        ok {"data":{"sessionId":"$child"}}
        > get_state @s
        ok {"data":{"sessionFile":"$second"}}
        > prompt @s {"message":"asked second"}
        ok
        until ${second} Two
        > create_session @t
        ok {"data":{"sessionInfo":{"sessionFile":"$other"}}}
        > prompt @t {"message":"asked elsewhere"}
        ok
        until ${other} Three
        cli delete s --yes
        absent ${first}
        contains ${second} asked second / Two
        contains ${other} asked elsewhere
        > list_stored_sessions
        ok {"data":{"sessions":["$has",{"sessionId":"t"},{"sessionId":"${child}"}]}}
        > get_state @s
        ok {"data":{"sessionId":"${child}","messageCount":2}}
        cli delete ${child} --yes
        absent ${second}
    "#

    push_delete_keeps_an_imported_file_unless_requested_otherwise => r#"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        > load_session #one {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        ok
        > prompt @stored {"message":"$ echo more"}
        ok
        until ~/.pi/agent/sessions/old.jsonl toolResult
        cli delete stored --yes
        contains ~/.pi/agent/sessions/old.jsonl from before
        > load_session #two {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        ok
        cli delete stored --yes --with-pi-files
        absent ~/.pi/agent/sessions/old.jsonl
    "#

    delete_session_removes_no_file => r#"
        model "One"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${file} One
        > delete_session @s
        ok
        contains ${file} asked first / One
    "#
}
