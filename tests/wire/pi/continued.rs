//! Session files that other programs append to: no entry is lost, and none is sent twice.

transcripts! {
    entries_appended_by_another_program_are_kept_and_sent_to_the_model => r#"
        model "One"
        model "Three"
        model "Five"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"first"}
        ok
        until ${file} One
        foreign ${file} said elsewhere / answered elsewhere
        > prompt @s {"message":"third"}
        ok {"sessionVersion":2}
        until ${file} Three
        request 1 {"messages":[{"role":"system"},{"content":"first"},{"content":"One"},{"content":"said elsewhere"},{"content":"answered elsewhere"},{"content":"third"}]}
        contains ${file} first / One / said elsewhere / answered elsewhere / third / Three
        > get_messages @s
        ok {"data":{"messages":[{"role":"user"},{"role":"assistant"},{"role":"user","content":[{"text":"said elsewhere"}],"timestamp":1767312000000},{"role":"assistant","content":[{"text":"answered elsewhere"}],"model":"other-model","timestamp":1767312001000},{"role":"user"},{"role":"assistant"}]}}
        > prompt @s {"message":"fifth"}
        ok {"sessionVersion":3}
        until ${file} Five
        contains ${file} first / One / said elsewhere / answered elsewhere / third / Three / fifth / Five
    "#

    entries_appended_while_the_daemon_was_stopped_are_imported_once => r#"
        model "One"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"first"}
        ok
        until ${file} One
        foreign ${file} said elsewhere / answered elsewhere
        kill
        > get_messages @s
        ok
        kill
        > prompt @s {"message":"third"}
        ok {"sessionVersion":2}
        until ${file} Three
        request 1 {"messages":[{"role":"system"},{"content":"first"},{"content":"One"},{"content":"said elsewhere"},{"content":"answered elsewhere"},{"content":"third"}]}
        contains ${file} first / One / said elsewhere / answered elsewhere / third / Three
    "#

    entries_appended_during_a_run_are_imported_after_it => r#"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"$ echo begun"}
        ok
        until ${file} toolResult
        > prompt @s {"message":"$ touch here; until [ -e go ]; do sleep 0.01; done; echo over"}
        ok
        until here
        foreign ${file} said elsewhere / answered elsewhere
        touch go
        until ${file} over
        contains ${file} said elsewhere / answered elsewhere
        > prompt @s {"message":"$ echo third"}
        ok {"sessionVersion":3}
        until ${file} echo third
        contains ${file} said elsewhere / answered elsewhere
        > get_messages @s
        ok {"data":{"messages":["$has",{"role":"user","content":[{"text":"said elsewhere"}],"timestamp":1767312000000}]}}
    "#

    loading_keeps_times_and_tool_results_and_continues_in_the_file => r#"
        model "Done"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"00000004\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"look\",\"timestamp\":1767225601000}}\n{\"type\":\"message\",\"id\":\"00000005\",\"parentId\":\"00000004\",\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"toolCall\",\"id\":\"c1\",\"name\":\"read\",\"arguments\":{\"path\":\"a\"}},{\"type\":\"toolCall\",\"id\":\"c2\",\"name\":\"bash\",\"arguments\":{\"command\":\"b\"}}],\"model\":\"m\",\"provider\":\"p\",\"stopReason\":\"toolUse\",\"timestamp\":1767225602000}}\n{\"type\":\"message\",\"id\":\"00000006\",\"parentId\":\"00000005\",\"timestamp\":\"2026-01-01T00:00:03.000Z\",\"message\":{\"role\":\"toolResult\",\"toolCallId\":\"c1\",\"toolName\":\"read\",\"content\":[{\"type\":\"text\",\"text\":\"the first\"}],\"isError\":false,\"timestamp\":1767225603000}}\n{\"type\":\"message\",\"id\":\"00000007\",\"parentId\":\"00000006\",\"timestamp\":\"2026-01-01T00:00:04.000Z\",\"message\":{\"role\":\"toolResult\",\"toolCallId\":\"c2\",\"toolName\":\"bash\",\"content\":[{\"type\":\"text\",\"text\":\"the second\"}],\"isError\":true,\"timestamp\":1767225604000}}\n"
        > load_session {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok {"data":{"sessionInfo":{"sessionFile":"${home}/work/.pi/sessions/old.jsonl","messageCount":4}}}
        > get_messages @stored
        ok {"data":{"messages":[{"role":"user","timestamp":1767225601000},{"role":"assistant","content":[{"name":"read"},{"name":"bash"}],"timestamp":1767225602000},{"role":"toolResult","toolName":"read","content":[{"text":"the first"}],"isError":false,"timestamp":1767225603000},{"role":"toolResult","toolName":"bash","content":[{"text":"the second"}],"isError":true,"timestamp":1767225604000}]}}
        > prompt @stored {"message":"go on"}
        ok
        until .pi/sessions/old.jsonl Done
        contains .pi/sessions/old.jsonl look / the first / the second / go on / Done
    "#

    loading_keeps_the_part_before_a_compaction => r#"
        model "Done"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"long ago\",\"timestamp\":1767225601000}}\n{\"type\":\"message\",\"id\":\"a2\",\"parentId\":\"a1\",\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"message\":{\"role\":\"user\",\"content\":\"kept\",\"timestamp\":1767225602000}}\n{\"type\":\"compaction\",\"id\":\"a3\",\"parentId\":\"a2\",\"timestamp\":\"2026-01-01T00:00:03.000Z\",\"summary\":\"in short\",\"firstKeptEntryId\":\"a2\",\"tokensBefore\":9}\n{\"type\":\"message\",\"id\":\"a4\",\"parentId\":\"a3\",\"timestamp\":\"2026-01-01T00:00:04.000Z\",\"message\":{\"role\":\"user\",\"content\":\"newest\",\"timestamp\":1767225604000}}\n"
        > load_session {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok {"data":{"sessionInfo":{"messageCount":3}}}
        > get_messages @stored
        ok {"data":{"messages":[{"role":"compactionSummary","summary":"in short","timestamp":1767225603000},{"role":"user","content":[{"text":"kept"}]},{"role":"user","content":[{"text":"newest"}],"timestamp":1767225604000}]}}
        > get_fork_messages @stored
        ok {"data":{"messages":[{"text":"long ago"},{"text":"kept"},{"text":"newest"}]}}
        > prompt @stored {"message":"go on"}
        ok
        until .pi/sessions/old.jsonl Done
        request 0 {"messages":[{"role":"system"},"$_",{"content":"kept"},{"content":"newest"},{"content":"go on"}]}
        contains .pi/sessions/old.jsonl long ago / kept / in short / newest / go on / Done
    "#

    new_session_starts_another_file_and_leaves_the_first_unchanged => r#"
        model "One"
        model "Two"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${first} One
        > new_session @s
        ok {"data":{"sessionId":"$child"},"sessionVersion":2}
        > get_state @s
        ok {"data":{"sessionFile":"$second"}}
        > prompt @s {"message":"asked second"}
        ok
        until ${second} Two
        contains ${first} asked first / One
        lacks ${first} asked second
        contains ${second} "parentSession":"${first}" / asked second / Two
        lacks ${second} asked first
        kill
        > get_state @${child}
        ok {"data":{"sessionFile":"${second}","messageCount":2}}
        > get_state @s
        ok {"data":{"sessionFile":"${first}","messageCount":2}}
    "#

    fork_copies_the_earlier_entries_into_another_file => r#"
        model "One"
        model "Two"
        model "Three"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${first} One
        foreign ${first} said elsewhere / answered elsewhere
        > prompt @s {"message":"asked second"}
        ok
        until ${first} Two
        > get_fork_messages @s
        ok {"data":{"messages":[{"text":"asked first"},{"text":"said elsewhere"},{"entryId":"$second","text":"asked second"}]}}
        > fork @s {"entryId":"${second}"}
        ok {"data":{"text":"asked second","cancelled":false}}
        > get_state @s
        ok {"data":{"sessionFile":"$fork","messageCount":4}}
        contains ${fork} "parentSession":"${first}" / asked first / One / said elsewhere / answered elsewhere
        lacks ${fork} asked second
        > prompt @s {"message":"asked third"}
        ok
        until ${fork} Three
        contains ${fork} asked first / One / said elsewhere / answered elsewhere / asked third / Three
        contains ${first} asked first / One / said elsewhere / answered elsewhere / asked second / Two
        lacks ${first} asked third
    "#

    switch_session_file_appends_to_that_file_afterwards => r#"
        model "Mine"
        model "Answer"
        model "Back"
        file ~/.pi/agent/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"from before\"}],\"timestamp\":1767225601000}}\n"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$first"}}}
        > prompt @s {"message":"left behind"}
        ok
        until ${first} Mine
        > switch_session_file @s {"sessionPath":"${home}/.pi/agent/sessions/old.jsonl"}
        ok {"sessionVersion":2}
        > prompt @s {"message":"and now"}
        ok
        until ~/.pi/agent/sessions/old.jsonl Answer
        contains ~/.pi/agent/sessions/old.jsonl from before / and now / Answer
        lacks ${first} and now
        > switch_session_file @s {"sessionPath":"${first}"}
        ok
        > prompt @s {"message":"once more"}
        ok
        until ${first} Back
        contains ${first} left behind / Mine / once more / Back
        request 2 {"messages":[{"role":"system"},{"content":"left behind"},{"content":"Mine"},{"content":"once more"}]}
    "#

    a_branch_and_a_name_of_another_program_are_imported => r#"
        model "Done"
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"the beginning\",\"timestamp\":1767225601000}}\n{\"type\":\"message\",\"id\":\"a2\",\"parentId\":\"a1\",\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"message\":{\"role\":\"user\",\"content\":\"one way\",\"timestamp\":1767225602000}}\n"
        > load_session {"sessionPath":"${home}/work/.pi/sessions/old.jsonl"}
        ok {"data":{"sessionInfo":{"messageCount":2}}}
        file .pi/sessions/old.jsonl "{\"type\":\"session\",\"version\":3,\"id\":\"stored\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n{\"type\":\"message\",\"id\":\"a1\",\"parentId\":null,\"timestamp\":\"2026-01-01T00:00:01.000Z\",\"message\":{\"role\":\"user\",\"content\":\"the beginning\",\"timestamp\":1767225601000}}\n{\"type\":\"message\",\"id\":\"a2\",\"parentId\":\"a1\",\"timestamp\":\"2026-01-01T00:00:02.000Z\",\"message\":{\"role\":\"user\",\"content\":\"one way\",\"timestamp\":1767225602000}}\n{\"type\":\"message\",\"id\":\"a3\",\"parentId\":\"a1\",\"timestamp\":\"2026-01-01T00:00:03.000Z\",\"message\":{\"role\":\"user\",\"content\":\"another way\",\"timestamp\":1767225603000}}\n{\"type\":\"session_info\",\"id\":\"a4\",\"parentId\":\"a3\",\"timestamp\":\"2027-01-01T00:00:04.000Z\",\"name\":\"Named elsewhere\"}\n"
        > prompt @stored {"message":"go on"}
        ok {"sessionVersion":1}
        until .pi/sessions/old.jsonl Done
        request 0 {"messages":[{"role":"system"},{"content":"the beginning"},{"content":"another way"},{"content":"go on"}]}
        contains .pi/sessions/old.jsonl the beginning / one way / another way / Named elsewhere / go on / Done
        > get_state @stored
        ok {"data":{"sessionName":"Named elsewhere","messageCount":4}}
    "#
}
