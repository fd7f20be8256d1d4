//! Section 10: the version of a session, and commands that expect a version.

transcripts! {
    a_new_session_is_at_version_zero => r#"
        > create_session @s
        ok {"sessionVersion":0}
        > get_state @s
        ok {"sessionVersion":0}
    "#

    every_change_advances_the_version_by_one => r#"
        model "hello"
        > create_session @s
        ok {"sessionVersion":0}
        > set_session_name @s {"name":"n"}
        ok {"sessionVersion":1}
        > set_thinking_level @s {"level":"low"}
        ok {"sessionVersion":2}
        > cycle_thinking_level @s
        ok {"sessionVersion":3}
        > set_model @s {"provider":"ollama","modelId":"other"}
        ok {"sessionVersion":4}
        > cycle_model @s
        ok {"sessionVersion":5}
        > set_auto_compaction @s {"enabled":false}
        ok {"sessionVersion":6}
        > set_auto_retry @s {"enabled":false}
        ok {"sessionVersion":7}
        > abort @s
        ok {"sessionVersion":8}
        > abort_bash @s
        ok {"sessionVersion":9}
        > abort_retry @s
        ok {"sessionVersion":10}
        > abort_compaction @s
        ok {"sessionVersion":11}
        > bash @s {"command":"true"}
        ok {"sessionVersion":12}
        > export_html @s
        ok {"sessionVersion":13}
        > prompt @s {"message":"hi"}
        ok {"sessionVersion":14}
        ev agent_end @s
        > new_session @s
        ok {"sessionVersion":15}
    "#

    setting_the_same_value_again_advances_the_version => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"n"}
        ok {"sessionVersion":1}
        > set_session_name @s {"name":"n"}
        ok {"sessionVersion":2}
        > set_auto_retry @s {"enabled":true}
        ok {"sessionVersion":3}
        > set_auto_retry @s {"enabled":true}
        ok {"sessionVersion":4}
        > set_thinking_level @s {"level":"off"}
        ok {"sessionVersion":5}
        > set_thinking_level @s {"level":"off"}
        ok {"sessionVersion":6}
    "#

    reads_never_advance_the_version => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"n"}
        ok {"sessionVersion":1}
        > get_state @s
        ok {"sessionVersion":1}
        > get_messages @s
        ok {"sessionVersion":1}
        > get_available_models @s
        ok {"sessionVersion":1}
        > get_commands @s
        ok {"sessionVersion":1}
        > get_skills @s
        ok {"sessionVersion":1}
        > get_tools @s
        ok {"sessionVersion":1}
        > list_session_files @s
        ok {"sessionVersion":1}
        > get_session_stats @s
        ok {"sessionVersion":1}
        > get_fork_messages @s
        ok {"sessionVersion":1}
        > get_last_assistant_text @s
        ok {"sessionVersion":1}
        > get_context_usage @s
        ok {"sessionVersion":1}
        > switch_session @s
        ok {"sessionVersion":1}
        > set_session_name @s {"name":"m"}
        ok {"sessionVersion":2}
    "#

    failures_never_advance_the_version => r#"
        > create_session @s
        ok
        > fork @s {"entryId":"nothing"}
        no Invalid entry ID for forking
        > set_model @s {"provider":"nobody","modelId":"m"}
        no Model not found: nobody/m
        > extension_ui_response @s {"requestId":"none","response":{"method":"cancelled"}}
        no No pending UI request with id none
        > create_session @s
        no Session s already exists
        > get_state @s
        ok {"sessionVersion":0}
    "#

    actions_of_the_run_do_not_advance_the_version => r#"
        > create_session @s
        ok
        > prompt @s {"message":"words\n\n$ echo one\n\n$ echo two"}
        ok {"sessionVersion":1}
        ev agent_end @s
        > get_state @s
        ok {"sessionVersion":1}
    "#

    a_command_for_the_current_version_is_executed => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"n","ifSessionVersion":0}
        ok {"sessionVersion":1}
        > prompt @s {"message":"$ true","ifSessionVersion":1}
        ok {"sessionVersion":2}
    "#

    a_command_for_another_version_fails_and_changes_nothing => r#"
        > create_session @s
        ok
        > set_session_name @s {"name":"n"}
        ok {"sessionVersion":1}
        > set_session_name @s {"name":"m","ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
        > prompt @s {"message":"$ touch ran","ifSessionVersion":7}
        no Session version mismatch: expected 7, got 1
        > bash @s {"command":"touch ran","ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
        > abort @s {"ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
        > new_session @s {"ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
        > delete_session @s {"ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
        > export_html @s {"ifSessionVersion":0}
        no Session version mismatch: expected 0, got 1
        > get_state @s
        ok {"data":{"sessionName":"n","messageCount":0},"sessionVersion":1}
    "#

    reads_check_the_expected_version => r#"
        > create_session @s
        ok
        > get_state @s {"ifSessionVersion":0}
        ok
        > get_messages @s {"ifSessionVersion":1}
        no Session version mismatch: expected 1, got 0
        > switch_session @s {"ifSessionVersion":1}
        no Session version mismatch: expected 1, got 0
    "#

    a_version_of_an_unknown_session_fails => r#"
        > get_state @s {"ifSessionVersion":0}
        no Session s not found for ifSessionVersion=0
        > set_session_name @s {"name":"n","ifSessionVersion":3}
        no Session s not found for ifSessionVersion=3
        > delete_session @s {"ifSessionVersion":1}
        no Session s not found for ifSessionVersion=1
        > switch_session @s {"ifSessionVersion":1}
        no Session s not found for ifSessionVersion=1
    "#

    a_deleted_session_has_no_version => r#"
        > create_session @s
        ok
        > delete_session @s
        ok {"sessionVersion":"$none"}
        > get_state @s
        no Session s not found
        > get_state @s {"ifSessionVersion":1}
        no Session s not found for ifSessionVersion=1
    "#

    the_first_of_two_writers_wins => r#"
        > create_session @s
        ok
        > set_session_name @s #one {"name":"one","ifSessionVersion":0}
        > set_session_name @s #two {"name":"two","ifSessionVersion":0}
        ok #one {"sessionVersion":1}
        no #two Session version mismatch: expected 0, got 1
        > get_state @s
        ok {"data":{"sessionName":"one"},"sessionVersion":1}
    "#

    a_queued_message_advances_the_version_once => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$ until [ -e go ]; do sleep 0.01; done"}
        ok {"sessionVersion":1}
        > follow_up @s {"message":"$ true"}
        ok {"sessionVersion":2}
        touch go
        ev agent_end @s
        ev agent_end @s
        > get_state @s
        ok {"sessionVersion":2}
    "#

    a_version_for_a_command_without_a_session_is_refused => r#"
        >? list_sessions {"ifSessionVersion":0}
        no Validation failed: ifSessionVersion: needs a command that names a session
    "#
}
