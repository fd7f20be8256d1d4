//! Messages that are slash commands or name a skill are expanded before they are sent, and `bash` is bash.

transcripts! {
    a_slash_command_is_expanded_with_its_arguments => r#"
        model "ok"
        file .pi/prompts/review.md "---\ndescription: Look again\n---\nLook at $1, then $2; all: $@; $ARGUMENTS; none: $3.\n"
        > create_session @s
        ok
        > prompt @s {"message":"/review one \"two three\""}
        ok
        ev agent_end @s
        request 0 {"messages":["$has",{"role":"user","content":"Look at one, then two three; all: one two three; one two three; none: ."}]}
    "#

    a_skill_is_expanded_with_its_path => r#"
        model "ok"
        file .pi/skills/baking/SKILL.md "---\nname: baking\ndescription: How to bake\n---\n\nBake it.\n"
        > create_session @s
        ok
        > prompt @s {"message":"/skill:baking a cake"}
        ok
        ev agent_end @s
        request 0 {"messages":["$has",{"role":"user","content":"<skill name=\"baking\" location=\"${home}/work/.pi/skills/baking/SKILL.md\">\nReferences are relative to ${home}/work/.pi/skills/baking.\n\nBake it.\n</skill>\n\na cake"}]}
    "#

    text_that_is_not_a_slash_command_is_sent_unchanged => r#"
        model "ok"
        file .pi/prompts/review.md "Look at $1"
        > create_session @s
        ok
        > prompt @s {"message":"/nothing of that name"}
        ok
        ev agent_end @s
        request 0 {"messages":["$has",{"role":"user","content":"/nothing of that name"}]}
    "#

    steering_and_follow_ups_are_expanded_too => r#"
        config [approvals]
        config preset = "trusted"
        file .pi/prompts/turn.md "Turn to the $1"
        model [{"call":"sandbox_exec","args":{"command":"touch here; until [ -e go ]; do sleep 0.01; done"}}]
        model "turned"
        model "followed"
        > create_session @s
        ok
        > prompt @s {"message":"work"}
        ok
        until here
        > follow_up @s {"message":"/turn right"}
        ok
        > steer @s {"message":"/turn left"}
        ok
        touch go
        ev agent_end @s
        ev agent_end @s
        request 1 {"messages":["$has",{"role":"user","content":"Turn to the left"}]}
        request 2 {"messages":["$has",{"role":"user","content":"Turn to the right"}]}
    "#

    bash_is_run_by_bash => r#"
        > create_session @s
        ok
        > bash @s {"command":"[[ bash == b* ]] && words=(one two) && echo $BASH"}
        ok {"data":{"exitCode":0,"output":"$~bash"}}
    "#
}
