//! Session files that are missing, malformed or of an earlier version: the session continues from the journal.

transcripts! {
    a_session_whose_imported_file_was_removed_can_be_forked => r#"
        model "One"
        model "Two"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        > load_session {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        > prompt @stored {"message":"asked first"}
        ok
        until .pi/sessions/old.jsonl One
        remove .pi/sessions/old.jsonl
        > get_fork_messages @stored
        ok {"data":{"messages":[{"text":"from before"},{"entryId":"$entry","text":"asked first"}]}}
        > fork @stored {"entryId":"${entry}"}
        ok {"data":{"text":"asked first"}}
        > get_state @stored
        ok {"data":{"sessionFile":"$fork","messageCount":1}}
        > prompt @stored {"message":"asked second"}
        ok
        until ${fork} Two
        contains ${fork} from before / asked second / Two
    "#

    a_session_whose_imported_file_was_removed_can_start_a_new_conversation_and_be_unloaded => r#"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        file .pi/sessions/other.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        > load_session #one {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        > prompt @stored {"message":"$ echo more"}
        ok
        until .pi/sessions/old.jsonl toolResult
        remove .pi/sessions/old.jsonl
        > new_session @stored
        ok
        > get_state @stored
        ok {"data":{"sessionFile":"$file","messageCount":0}}
        > switch_session_file @stored #to {"sessionPath":"${home}/work/.pi/sessions/other.jsonl"}
        ok
        > prompt @stored {"message":"$ echo again"}
        ok
        until .pi/sessions/other.jsonl toolResult
        remove .pi/sessions/other.jsonl
        > delete_session @stored
        ok
    "#

    a_session_whose_file_is_malformed_can_start_a_new_conversation_and_be_unloaded => r#"
        model "One"
        model "Two"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${file} One
        append ${file} "this is no entry\n"
        > switch_session_file @s {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        > get_state @s
        ok {"data":{"sessionFile":"${home}/work/.pi/sessions/old.jsonl","messageCount":1}}
        append .pi/sessions/old.jsonl "this is no entry\n"
        > new_session @s
        ok
        > create_session @t
        ok {"data":{"sessionInfo":{"sessionFile":"$other"}}}
        > prompt @t {"message":"asked second"}
        ok
        until ${other} Two
        append ${other} "this is no entry\n"
        > delete_session @t
        ok
    "#

    switch_session_file_takes_the_name_of_the_file => r#"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n{\"type\":\"session_info\",\"id\":\"a2\",\"parentId\":\"a1\",\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"name\":\"Named elsewhere\"}\n"
        > create_session @s
        ok
        > switch_session_file @s {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        > get_state @s
        ok {"data":{"sessionName":"Named elsewhere"}}
    "#

    loading_a_file_under_a_known_id_takes_its_name => r#"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n{\"type\":\"session_info\",\"id\":\"a2\",\"parentId\":\"a1\",\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"name\":\"Named elsewhere\"}\n"
        > create_session @s
        ok
        > delete_session @s
        ok
        > load_session @s {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        > get_state @s
        ok {"data":{"sessionName":"Named elsewhere","messageCount":1}}
    "#

    forking_a_file_of_an_earlier_version_writes_nothing_twice => r#"
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
        older ${first}
        > get_fork_messages @s
        ok {"data":{"messages":[{"text":"asked first"},{"entryId":"$second","text":"asked second"}]}}
        > fork @s {"entryId":"${second}"}
        ok
        > get_state @s
        ok {"data":{"sessionFile":"$fork","messageCount":2}}
        > prompt @s {"message":"asked third"}
        ok
        until ${fork} Three
        contains ${fork} asked first / One / asked third / Three
        request 2 {"messages":[{"role":"system"},{"content":"asked first"},{"content":"One"},{"content":"asked third"}]}
    "#

    steer_without_a_run_imports_what_another_program_has_appended => r#"
        model "One"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"first"}
        ok
        until ${file} One
        foreign ${file} said elsewhere / answered elsewhere
        > steer @s {"message":"third"}
        ok
        until ${file} Three
        request 1 {"messages":[{"role":"system"},{"content":"first"},{"content":"One"},{"content":"said elsewhere"},{"content":"answered elsewhere"},{"content":"third"}]}
        contains ${file} first / One / said elsewhere / answered elsewhere / third / Three
    "#

    a_partial_line_of_another_program_is_kept_and_skipped => r#"
        model "One"
        model "Two"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${file} One
        append ${file} "{\"type\":\"message\",\"id\":\"half\",\"message\":{\"role\":\"user\",\"content\":\"half written"
        > prompt @s {"message":"asked second"}
        ok
        until ${file} Two
        > prompt @s {"message":"asked third"}
        ok
        until ${file} Three
        contains ${file} asked first / One / half written / asked second / Two / asked third / Three
    "#

    a_daemon_killed_after_a_session_switched_its_file_continues_in_the_new_file => r#"
        model "One"
        model "Two"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${first} One
        > switch_session_file @s {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        crash 1
        > prompt @s {"message":"asked second"}
        ok
        until .pi/sessions/old.jsonl Two
        contains .pi/sessions/old.jsonl from before / asked second / Two
        lacks .pi/sessions/old.jsonl asked first
        lacks ${first} asked second
        request 1 {"messages":[{"role":"system"},{"content":"from before"},{"content":"asked second"}]}
    "#

    a_daemon_killed_before_a_session_switched_its_file_continues_in_the_old_file => r#"
        model "One"
        model "Two"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"from before\",\"timestamp\":1767225601000}}\n"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${first} One
        > switch_session_file @s {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok
        crash 1000000
        > prompt @s {"message":"asked second"}
        ok
        until ${first} Two
        contains ${first} asked first / One / asked second / Two
        lacks .pi/sessions/old.jsonl asked second
    "#
}
