//! Section 21: the circuit breaker of a provider.

transcripts! {
    a_provider_that_keeps_failing_gets_no_requests => r#"
        env PUSH_MODEL_ATTEMPTS=1
        model {"status":500,"body":"oops"}
        model {"status":500,"body":"oops"}
        model {"status":500,"body":"oops"}
        model {"status":500,"body":"oops"}
        model {"status":500,"body":"oops"}
        > create_session @s
        ok
        > get_metrics
        ok {"data":{"circuitBreakers":"$_"}}
        > prompt @s {"message":"1"}
        ok
        ev agent_end @s
        > prompt @s {"message":"2"}
        ok
        ev agent_end @s
        > prompt @s {"message":"3"}
        ok
        ev agent_end @s
        > health_check
        ok {"data":{"healthy":true}}
        > prompt @s {"message":"4"}
        ok
        ev agent_end @s
        > prompt @s {"message":"5"}
        ok {"sessionVersion":5}
        ev agent_end @s
        > prompt @s {"message":"6"}
        no Circuit breaker open
        > follow_up @s {"message":"7"}
        no Circuit breaker open
        > health_check
        ok {"data":{"healthy":false,"issues":["$_"],"hasOpenCircuit":true,"hasOpenBashCircuit":false}}
        > get_metrics
        ok {"data":{"circuitBreakers":["$has",{"provider":"ollama","state":"open","failureCount":5,"openedCount":1}]}}
        > get_state @s
        ok {"sessionVersion":5}
    "#

    a_success_resets_the_failure_count => r#"
        env PUSH_MODEL_ATTEMPTS=1
        model {"status":500,"body":"oops"}
        model "Hello"
        > create_session @s
        ok
        > prompt @s {"message":"1"}
        ok
        ev agent_end @s
        > prompt @s {"message":"2"}
        ok
        ev agent_end @s
        > get_metrics
        ok {"data":{"circuitBreakers":["$has",{"provider":"ollama","state":"closed","failureCount":0,"openedCount":0}]}}
    "#
}
