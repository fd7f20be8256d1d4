//! Section 18: questions to the user, from whichever side they are answered.

use serde_json::json;

use crate::pi::line::Via;
use crate::pi::world::{Ground, World, reply};

transcripts! {
    an_approval_is_asked_as_a_confirmation_and_answered => r#"
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

    a_confirmation_that_is_denied_runs_nothing => r#"
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

    a_question_that_is_dismissed_is_denied => r#"
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

    a_question_runs_out_of_time => r#"
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

    a_question_is_settled_once => r#"
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

    nobody_asked_that => r#"
        > create_session @s
        ok
        > extension_ui_response @s {"requestId":"nothing","response":{"method":"confirm","confirmed":true}}
        no No pending UI request with id nothing
        > extension_ui_response @nobody {"requestId":"nothing","response":{"method":"cancelled"}}
        no Session nobody not found
    "#

    an_answer_of_another_kind_is_refused_and_the_question_stays => r#"
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

    an_answer_that_is_none_is_refused => r#"
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

    who_subscribes_is_asked_what_waits => r#"
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

    an_approval_shows_all_that_runs_and_masks_known_values_alone => r#"
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

/// Nothing that this daemon asks goes on without an answer, so that none has the 60 seconds of questions that do not block.
#[test]
fn a_question_that_blocks_a_run_waits_as_long_as_an_approval() {
    let world = World::new(&Ground { model: true, ..Ground::default() });
    let asks = json!([{"call": "ask_user", "args": {"method": "confirm", "title": "Sure?"}}]);
    world.model.as_ref().expect("a model").script([reply(&asks)]);
    let mut line = world.connect(Via::Stdio);
    let cwd = format!("{}/work", world.home());
    line.send(json!({"type": "create_session", "id": "c", "sessionId": "s", "cwd": cwd}));
    line.send(json!({"type": "prompt", "id": "p", "sessionId": "s", "message": "go"}));
    while line.log.last().is_none_or(|line| line["event"]["method"] != "confirm") {
        assert!(line.hear(), "the connection was closed");
    }
    let timeout = line.log.last().and_then(|line| line["event"]["timeout"].as_u64()).expect("a time");
    let hours = timeout / (60 * 60 * 1000);
    assert!((23..=24).contains(&hours), "{timeout} ms");
    line.finish();
}
