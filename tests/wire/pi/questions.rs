//! Section 18: questions to the user, answered by any client.

use serde_json::json;

use crate::pi::fixture::{Fixture, Setup, reply};
use crate::pi::line::Transport;

transcripts! {
    an_approval_is_a_confirmation_request => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? touch approved"}
        ok {"sessionVersion":1}
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm","title":"$_","message":"$_","timeout":"$_"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok {"data":"$none","sessionVersion":2}
        ev extension_ui_request @s {"method":"setStatus","key":"$gate","text":"$~approved"}
        ev agent_end @s
        until approved
    "#

    a_denied_confirmation_runs_nothing => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? touch denied"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":false}}
        ok
        ev extension_ui_request @s {"method":"setStatus","key":"$gate","text":"$~denied"}
        ev agent_end @s
        > bash @s {"command":"ls"}
        ok {"data":{"output":""}}
    "#

    a_dismissed_approval_is_denied => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? touch dismissed"}
        ok
        ev extension_ui_request @s {"requestId":"$gate"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"cancelled"}}
        ok
        ev extension_ui_request @s {"method":"setStatus","key":"$gate","text":"$~denied"}
        ev agent_end @s
        > bash @s {"command":"ls"}
        ok {"data":{"output":""}}
    "#

    a_question_expires => r#"
        env PUSH_APPROVAL_SECONDS=0.3
        > create_session @s
        ok
        > prompt @s {"message":"$? touch late"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm","timeout":300}
        ev extension_ui_request @s {"method":"setStatus","key":"$gate"}
        ev agent_end @s
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        no Request ${gate} already settled
        > bash @s {"command":"ls"}
        ok {"data":{"output":""}}
    "#

    a_question_is_answered_once => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? echo once"}
        ok
        ev extension_ui_request @s {"requestId":"$gate"}
        > extension_ui_response @s #1 {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok
        > extension_ui_response @s #2 {"requestId":"${gate}","response":{"method":"confirm","confirmed":false}}
        no Request ${gate} already settled
        > extension_ui_response @s #1 {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok {"replayed":true}
        ev agent_end @s
    "#

    a_question_of_another_session_is_not_answered => r#"
        > create_session @s
        ok
        > create_session @t
        ok
        > prompt @s {"message":"$? echo mine"}
        ok
        ev extension_ui_request @s {"requestId":"$gate"}
        > extension_ui_response @t {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        no Session ID mismatch for request ${gate}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok
        ev agent_end @s
    "#

    an_answer_to_an_unknown_question_is_refused => r#"
        > create_session @s
        ok
        > extension_ui_response @s {"requestId":"nothing","response":{"method":"confirm","confirmed":true}}
        no No pending UI request with id nothing
        > extension_ui_response @nobody {"requestId":"nothing","response":{"method":"cancelled"}}
        no Session nobody not found
    "#

    an_answer_of_another_method_is_refused_and_the_question_stays_pending => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? echo kind"}
        ok
        ev extension_ui_request @s {"requestId":"$gate"}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"input","value":"yes"}}
        no Validation failed: response.method: must be 'confirm' or 'cancelled' to match the request
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok
        ev agent_end @s
    "#

    an_invalid_answer_is_refused => r#"
        > create_session @s
        ok
        >! extension_ui_response @s {"requestId":"x"}
        no Validation failed: response: must be an object
        >! extension_ui_response @s {"response":{"method":"cancelled"}}
        no Validation failed: requestId: must be a string and is missing
        >! extension_ui_response @s {"requestId":"x","response":{"method":"shout"}}
        no Validation failed: response.method: must be one of select, confirm, input, editor, interview, cancelled
        >! extension_ui_response @s {"requestId":"x","response":{"method":"confirm"}}
        no Validation failed: response.confirmed: must be true or false
        >! extension_ui_response @s {"requestId":"x","response":{"method":"select"}}
        no Validation failed: response.value: must be a string and is missing
        >! extension_ui_response @s {"requestId":"x","response":{"method":"interview","responses":[]}}
        no Validation failed: response.responses: must be an object
    "#

    a_new_subscriber_receives_pending_questions => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? echo waiting"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        > get_metrics
        ok {"data":{"stores":{"extensionUI":{"pendingCount":1}}}}
        B: > switch_session @s
        B: ok
        B: ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        B: > extension_ui_response @s {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        B: ok
        ev agent_end @s
    "#

    an_answer_overtakes_a_shell_command => r#"
        > create_session @s
        ok
        > prompt @s {"message":"$? echo asked"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","method":"confirm"}
        > bash @s #slow {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > extension_ui_response @s #answer {"requestId":"${gate}","response":{"method":"confirm","confirmed":true}}
        ok #answer
        never {"type":"command_finished","data":{"commandId":"slow"}}
        touch go
        ok #slow
        ev agent_end @s
    "#

    an_approval_shows_the_whole_command_and_masks_only_known_values => r#"
        env MY_API_TOKEN=correct-horse-battery-staple
        > create_session @s
        ok
        > prompt @s {"message":"$? DB_PASSWORD=\"x$(touch made; echo y)\" true"}
        ok
        ev extension_ui_request @s {"requestId":"$gate","title":"$_","message":"DB_PASSWORD=\"x$(touch made; echo y)\" true","details":{"maskedValues":"$none"}}
        > extension_ui_response @s {"requestId":"${gate}","response":{"method":"cancelled"}}
        ok
        ev agent_end @s
        > prompt @s {"message":"```sh ask\n: '-----BEGIN PRIVATE KEY-----'\ntouch made\n: '-----END PRIVATE KEY-----'\n```\n"}
        ok
        ev extension_ui_request @s {"requestId":"$gate2","message":"$~KEY-----'\ntouch made\n: '-----END"}
        > extension_ui_response @s {"requestId":"${gate2}","response":{"method":"cancelled"}}
        ok
        ev agent_end @s
    "#
}

/// All questions of this daemon block their run, so that none has the 60 seconds of questions that do not.
#[test]
fn a_question_that_blocks_a_run_expires_like_an_approval() {
    let fixture = Fixture::new(&Setup { model: true, ..Setup::default() });
    let asks = json!([{"call": "ask_user", "args": {"method": "confirm", "title": "Sure?"}}]);
    fixture.model.as_ref().expect("a model").script([reply(&asks)]);
    let mut line = fixture.connect(Transport::Stdio);
    let cwd = format!("{}/work", fixture.home());
    line.send(json!({"type": "create_session", "id": "c", "sessionId": "s", "cwd": cwd}));
    line.send(json!({"type": "prompt", "id": "p", "sessionId": "s", "message": "go"}));
    while line.log.last().is_none_or(|line| line["event"]["method"] != "confirm") {
        assert!(line.receive(), "the connection was closed");
    }
    let timeout = line.log.last().and_then(|line| line["event"]["timeout"].as_u64()).expect("a time");
    let hours = timeout / (60 * 60 * 1000);
    assert!((23..=24).contains(&hours), "{timeout} ms");
    line.finish();
}
