//! Section 17.2, discovery: models, slash commands, skills, tools and files.

transcripts! {
    get_available_models_returns_the_models_of_the_servers => r#"
        model "unused"
        > create_session @s
        ok
        > get_available_models @s
        ok {"data":{"models":["$has",{"id":"test-model","provider":"ollama","contextWindow":32768}]},"sessionVersion":0}
    "#

    get_available_models_is_empty_without_a_provider => r#"
        > create_session @s
        ok
        > get_available_models @s
        ok {"data":{"models":[]}}
        > get_available_models @nobody
        no Session nobody not found
    "#

    get_commands_finds_those_of_the_project_and_of_the_user => r#"
        file .pi/prompts/review.md "---\ndescription: Look again\n---\nLook at $1"
        file ~/.pi/agent/prompts/plan.md "Make a plan"
        file .claude/commands/ship.md "Ship it"
        > create_session @s
        ok
        > get_commands @s
        ok {"data":{"commands":["$has",{"name":"review","description":"Look again","source":"$_","location":"project","path":"${home}/work/.pi/prompts/review.md"},{"name":"plan","location":"user"},{"name":"ship","location":"project"}]}}
    "#

    get_commands_is_empty_where_there_are_none => r#"
        > create_session @s
        ok
        > get_commands @s
        ok {"data":{"commands":[]}}
        > get_commands @nobody
        no Session nobody not found
    "#

    get_skills_finds_those_of_the_project_and_of_the_user => r#"
        file .pi/skills/baking/SKILL.md "---\nname: baking\ndescription: How to bake\n---\nBake."
        file ~/.claude/skills/sewing/SKILL.md "---\nname: sewing\ndescription: How to sew\n---\nSew."
        > create_session @s
        ok
        > get_skills @s
        ok {"data":{"skills":["$has",{"name":"baking","description":"How to bake","filePath":"${home}/work/.pi/skills/baking/SKILL.md","source":"project"},{"name":"sewing","source":"user"}]}}
        > get_commands @s
        ok {"data":{"commands":["$has",{"name":"skill:baking","source":"skill"}]}}
    "#

    get_skills_follows_no_link_out_of_its_directory => r#"
        file ~/secret/SKILL.md "---\nname: secret\ndescription: not theirs\n---\n"
        file .pi/skills/good/SKILL.md "---\nname: good\ndescription: d\n---\n"
        > create_session @s
        ok
        link .pi/skills/bad ${home}/secret
        > get_skills @s
        ok {"data":{"skills":[{"name":"good"}]}}
        > get_skills @nobody
        no Session nobody not found
    "#

    get_tools_lists_the_tools_of_a_model => r#"
        model "unused"
        > create_session @s
        ok
        > get_tools @s
        ok {"data":{"tools":["$has",{"name":"sandbox_exec","description":"$_"},{"name":"sandbox_read_file"},{"name":"sandbox_edit_file"}]}}
    "#

    get_tools_needs_a_session => r#"
        > get_tools @nobody
        no Session nobody not found
        >! get_tools
        no ~Session commands must have
    "#

    list_session_files_lists_the_files_of_the_session_s_directory => r#"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > list_session_files @s
        ok {"data":{"files":"$_"}}
        > prompt @s {"message":"$ true"}
        ok
        ev agent_end @s
        until ${file} $ true
        > list_session_files @s
        ok {"data":{"files":["$has",{"path":"$file","name":"$_","modifiedAt":"$_"}]}}
        > list_session_files @nobody
        no Session nobody not found
    "#

    get_tools_lists_the_tools_of_a_playbook => r#"
        > create_session @s
        ok
        > get_tools @s
        ok {"data":{"tools":[{"name":"sandbox_read_file","description":"$_"},{"name":"sandbox_write_file"},{"name":"sandbox_exec"}]}}
    "#
}
