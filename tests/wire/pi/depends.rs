//! Section 9: dependencies between commands.

transcripts! {
    a_command_may_depend_on_one_that_succeeded => r#"
        > create_session @s #c
        ok
        > set_session_name @s {"name":"n","dependsOn":["c"]}
        ok {"sessionVersion":1}
    "#

    an_unknown_dependency_fails_at_once => r#"
        > health_check #h {"dependsOn":["nobody"]}
        no Dependency 'nobody' is unknown
        < {"type":"command_accepted","data":{"commandId":"h","dependsOn":["nobody"]}}
        never {"type":"command_started","data":{"commandId":"h"}}
    "#

    a_failed_dependency_fails_its_dependents => r#"
        > get_state @s #g
        no Session s not found
        > health_check #h {"dependsOn":["g"]}
        no Dependency 'g' failed: Session s not found
        never {"type":"command_started","data":{"commandId":"h"}}
    "#

    one_failed_dependency_of_several_is_enough => r#"
        > health_check #good
        ok
        > get_state @s #bad
        no Session s not found
        > list_sessions {"dependsOn":["good","bad"]}
        no Dependency 'bad' failed: Session s not found
    "#

    a_command_cannot_depend_on_itself => r#"
        > health_check #h {"dependsOn":["h"]}
        no Command 'h' cannot depend on itself
        never {"type":"command_started","data":{"commandId":"h"}}
    "#

    a_dependency_that_finished_in_the_same_lane_is_satisfied => r#"
        > create_session @s
        ok
        > set_session_name @s #one {"name":"a"}
        ok
        > set_session_name @s #two {"name":"b","dependsOn":["one"]}
        ok {"sessionVersion":2}
    "#

    a_dependency_in_flight_in_the_same_lane_fails_at_once => r#"
        > create_session @s
        ok
        > bash @s #slow {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > set_session_name @s #after {"name":"n","dependsOn":["slow"]}
        no #after Dependency 'slow' is queued in the same lane and cannot be awaited from this command
        never {"type":"command_finished","data":{"commandId":"slow"}}
        touch go
        ok #slow
    "#

    a_dependency_that_waits_in_the_same_lane_fails_at_once => r#"
        > create_session @s
        ok
        > bash @s #slow {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > set_session_name @s #queued {"name":"n"}
        > set_session_name @s #after {"name":"m","dependsOn":["queued"]}
        no #after Dependency 'queued' is queued in the same lane and cannot be awaited from this command
        touch go
        ok #slow
        ok #queued
    "#

    a_dependency_in_another_lane_is_waited_for => r#"
        > create_session @s
        ok
        > create_session @t
        ok
        > bash @s #slow {"command":"touch here; until [ -e go ]; do sleep 0.01; done"}
        until here
        > set_session_name @t #after {"name":"n","dependsOn":["slow"]}
        < {"type":"command_accepted","data":{"commandId":"after"}}
        > health_check
        ok
        never {"type":"command_started","data":{"commandId":"after"}}
        touch go
        ok #slow
        ok #after {"sessionVersion":1}
        << {"type":"command_finished","data":{"commandId":"slow"}}
        << {"type":"command_started","data":{"commandId":"after"}}
    "#

    a_dependency_that_fails_in_another_lane_fails_its_dependents => r#"
        env PUSH_PI_COMMAND_SECONDS=0.3
        > create_session @s
        ok
        > create_session @t
        ok
        > bash @s #slow {"command":"until [ -e never ]; do sleep 0.01; done"}
        > set_session_name @t #after {"name":"n","dependsOn":["slow"]}
        no #after Dependency 'slow' failed: Command 'bash' timed out after 300ms
        no #slow Command 'bash' timed out after 300ms
    "#

    a_dependency_is_waited_for_until_its_timeout => r#"
        env PUSH_PI_DEPENDENCY_SECONDS=0.2
        > create_session @s
        ok
        > create_session @t
        ok
        > bash @s #slow {"command":"until [ -e go ]; do sleep 0.01; done"}
        > set_session_name @t #after {"name":"n","dependsOn":["slow"]}
        no #after Dependency 'slow' timed out after 200ms
        never {"type":"command_started","data":{"commandId":"after"}}
        touch go
        ok #slow
        > set_session_name @t #after {"name":"n","dependsOn":["slow"]}
        is {"success":false,"error":"Dependency 'slow' timed out after 200ms","replayed":true}
    "#

    more_dependencies_than_allowed_are_refused => r#"
        >! health_check {"dependsOn":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17","18","19","20","21","22","23","24","25","26","27","28","29","30","31","32","33"]}
        no Validation failed: dependsOn: must be at most 32 command ids, not 33
        never {"type":"command_accepted"}
    "#

    a_failure_by_a_dependency_is_a_stored_outcome => r#"
        > health_check #h {"dependsOn":["later"]}
        no Dependency 'later' is unknown
        > list_sessions #later
        ok
        > health_check #h {"dependsOn":["later"]}
        is {"success":false,"error":"Dependency 'later' is unknown","replayed":true}
    "#

    a_chain_of_dependencies_across_lanes_runs_in_order => r#"
        > create_session @a #1
        > create_session @b #2 {"dependsOn":["1"]}
        > create_session @c #3 {"dependsOn":["2"]}
        ok #1
        ok #2
        ok #3
        << {"type":"command_finished","data":{"commandId":"1"}}
        << {"type":"command_started","data":{"commandId":"2"}}
        << {"type":"command_finished","data":{"commandId":"2"}}
        << {"type":"command_started","data":{"commandId":"3"}}
    "#

    commands_of_another_connection_can_be_waited_for => r#"
        > create_session @s #made
        ok
        B: > set_session_name @s {"name":"n","dependsOn":["made"]}
        B: ok {"sessionVersion":1}
    "#
}
