//! One suite for all providers, over real connections to a scripted server with all three dialects and every kind of
//! failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod answers;
mod circuits;
mod faults;
mod fixture;
mod new_dialect;
mod requests;
mod retries;
mod settings;

use pushd::provider::error::ModelErrorKind;

/// Declares one test per case and dialect.
macro_rules! suite {
    ($($file:ident: $($case:ident)+;)+) => {
        suite!(@dialect ollama Ollama $($file: $($case)+;)+);
        suite!(@dialect openai OpenAi $($file: $($case)+;)+);
        suite!(@dialect anthropic Anthropic $($file: $($case)+;)+);
    };
    (@dialect $module:ident $dialect:ident $($file:ident: $($case:ident)+;)+) => {
        mod $module {
            $($(
                #[tokio::test]
                async fn $case() {
                    super::$file::$case(crate::support::model::ServerDialect::$dialect).await;
                }
            )+)+
        }
    };
}

suite! {
    answers:
        a_text_is_passed_on
        tokens_come_in_order
        an_empty_turn_ends
        any_text_survives
        a_long_text_survives
        thinking_is_distinguished_from_text
        a_tool_call_is_complete
        several_calls_keep_their_order
        arguments_in_fragments_of_one_byte_are_joined
        a_call_without_arguments_has_an_empty_object
        arguments_that_are_no_object_are_passed_on
        text_comes_before_the_call_it_announces
        usage_is_reported
        a_turn_without_usage_costs_nothing
        a_truncated_turn_is_reported
        a_refusal_is_reported
        bytes_one_at_a_time_make_the_same_answer
        a_body_that_ends_with_its_connection_is_complete
        a_fast_answer_comes_in_few_deltas
        a_token_is_passed_on_before_the_next_arrives
        reading_a_turn_is_cancellation_safe
        a_connection_is_reused;
    requests:
        the_key_and_the_headers_are_sent
        tools_and_results_are_sent
        thinking_is_sent_back_to_its_server
        limits_on_tokens_are_sent
        dropping_the_answer_closes_the_stream
        dropping_the_request_before_the_answer_closes_the_connection;
    faults:
        a_wrong_key_is_reported_with_what_to_set
        a_forbidden_model_is_reported
        a_missing_model_is_reported
        a_wrong_path_is_reported_with_the_base_url
        a_refused_request_is_reported_with_the_server_s_message
        a_conversation_that_is_too_long_is_reported
        an_empty_account_is_reported
        a_redirect_is_not_followed
        a_web_page_is_refused_as_an_answer
        garbage_in_the_middle_ends_the_answer
        garbage_from_the_start_is_not_retried
        an_answer_that_is_not_http_is_refused
        an_interruption_is_reported_after_the_received_text
        a_cut_inside_a_character_is_an_interruption
        a_cut_inside_a_character_of_an_unframed_body_is_an_interruption
        a_reset_in_the_middle_is_an_interruption
        an_answer_without_its_end_marker_is_an_interruption
        silence_is_reported_after_its_timeout
        silence_after_the_head_is_reported
        silence_in_the_middle_is_reported_after_the_received_text
        a_slow_answer_is_no_silence
        a_huge_line_is_refused
        an_error_in_the_middle_is_reported_after_the_received_text
        too_many_calls_are_refused
        too_much_text_is_refused
        too_long_arguments_are_refused
        a_key_that_the_server_repeats_is_redacted
        an_error_is_final;
    retries:
        a_rate_limit_is_waited_out
        a_retry_after_is_honoured
        a_retry_after_over_the_limit_is_not_waited_for
        a_lasting_rate_limit_is_reported
        a_failing_server_is_retried
        an_overloaded_server_is_retried
        a_server_that_stays_overloaded_is_reported
        timeouts_and_conflicts_are_retried
        a_connection_closed_without_an_answer_is_retried
        a_connection_reset_without_an_answer_is_retried
        an_interruption_before_the_first_delta_is_retried
        an_error_before_the_first_delta_is_retried
        an_unreachable_server_is_reported
        a_wrong_key_reported_as_a_server_error_is_not_retried
        a_model_that_is_being_loaded_is_waited_for
        a_model_that_loads_for_too_long_is_reported;
    circuits:
        a_circuit_opens_after_failures_and_sends_nothing
        a_circuit_closes_when_the_server_is_back
        a_failed_probe_keeps_the_circuit_open
        a_dropped_probe_permits_another
        wrong_keys_open_no_circuit
        interrupted_answers_open_the_circuit
        each_endpoint_has_its_own_circuit
        the_requests_of_one_run_count_once
        a_run_that_was_admitted_is_not_refused_later
        a_run_of_a_person_is_never_refused_and_probes
        providers_of_one_server_share_its_circuit;
    settings:
        the_models_of_a_server_are_listed
        without_a_model_the_choice_is_reported
        the_model_of_the_settings_is_the_default
        the_environment_overrides_the_base_url
        an_invalid_base_url_is_reported
        a_missing_key_is_reported_with_what_to_set
        a_key_is_found_in_the_file
        a_file_of_keys_that_others_can_read_is_refused
        an_invalid_header_is_reported
        settings_do_not_show_secrets;
}

#[tokio::test]
async fn a_running_ollama_is_found() {
    settings::a_running_ollama_is_found().await;
}

#[tokio::test]
async fn custom_providers_have_their_own_variables() {
    settings::custom_providers_have_their_own_variables().await;
}

#[test]
fn every_kind_of_error_is_documented() {
    let page = include_str!("../../docs/providers.md");
    let (_, errors) = page.split_once("## Errors").unwrap();
    let (table, _) = errors.split_once("## Bounds").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), ModelErrorKind::ALL.len());
    for (row, kind) in rows.iter().zip(ModelErrorKind::ALL) {
        assert!(row.starts_with(&format!("| `{kind}` |")), "{row} stands where {kind} should");
        let again = if kind.retryable() { "| yes |" } else { "| no |" };
        assert!(row.ends_with(again), "{row}");
    }
}
