//! One suite for all providers, over real connections to a scripted server with all three dialects and every kind of
//! failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/model/mod.rs"]
mod model;

#[path = "providers/answers.rs"]
mod answers;
#[path = "providers/asking.rs"]
mod asking;
#[path = "providers/circuits.rs"]
mod circuits;
#[path = "providers/faults.rs"]
mod faults;
#[path = "providers/retries.rs"]
mod retries;
#[path = "providers/settings.rs"]
mod settings;
#[path = "providers/world.rs"]
mod world;

use pushd::provider::dialect::Dialect;
use pushd::provider::error::Kind;

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
                    super::$file::$case(super::Dialect::$dialect).await;
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
        thinking_is_told_from_text
        a_call_comes_whole
        several_calls_keep_their_order
        arguments_in_fragments_of_one_byte_become_whole
        a_call_without_arguments_has_an_empty_object
        arguments_that_are_no_object_are_passed_on
        text_comes_before_the_call_it_announces
        usage_is_reported
        a_turn_without_usage_costs_nothing
        a_turn_that_got_too_long_says_so
        a_refusal_says_so
        bytes_one_at_a_time_make_the_same_answer
        a_body_that_ends_with_its_connection_is_whole
        a_fast_answer_comes_in_few_pieces
        a_token_is_passed_on_before_the_next_arrives
        an_answer_may_be_waited_for_in_parts
        a_connection_is_used_again;
    asking:
        the_question_is_put_in_the_dialect
        the_key_and_the_headers_are_sent
        tools_and_results_are_sent
        thinking_goes_back_to_whom_it_came_from
        limits_on_tokens_are_sent
        dropping_the_answer_closes_the_stream
        dropping_it_before_the_answer_closes_the_connection;
    faults:
        a_wrong_key_is_told_with_what_to_set
        a_forbidden_model_is_told
        a_missing_model_is_told
        a_wrong_path_is_told_with_the_base_url
        a_refused_request_is_told_in_the_server_s_words
        a_conversation_that_is_too_long_is_told
        an_empty_account_is_told
        a_redirect_is_not_followed
        a_web_page_is_no_answer
        garbage_in_the_middle_ends_the_answer
        garbage_from_the_start_is_not_asked_again
        what_is_no_http_is_no_answer
        a_cut_in_the_middle_is_told_after_what_came
        a_cut_inside_a_character_is_a_cut
        a_cut_inside_a_character_of_an_unframed_body_is_a_cut
        a_reset_in_the_middle_is_a_cut
        an_answer_that_ends_without_its_end_is_cut
        silence_is_told_after_its_time
        silence_after_the_head_is_told
        silence_in_the_middle_is_told_after_what_came
        a_slow_answer_is_no_silence
        a_huge_line_is_refused
        an_error_in_the_middle_is_told_after_what_came
        too_many_calls_are_refused
        too_much_text_is_refused
        too_long_arguments_are_refused
        a_key_that_the_server_repeats_is_hidden
        an_error_stays_one;
    retries:
        a_rate_limit_is_waited_out
        the_time_a_server_asks_for_is_waited
        a_server_that_asks_for_too_long_is_not_waited_for
        a_rate_limit_that_lasts_is_told
        a_failing_server_is_asked_again
        an_overloaded_server_is_asked_again
        a_server_that_stays_overloaded_is_told
        timeouts_and_conflicts_are_asked_again
        a_connection_closed_without_an_answer_is_asked_again
        a_connection_reset_without_an_answer_is_asked_again
        a_cut_before_the_first_piece_is_asked_again
        an_error_before_the_first_piece_is_asked_again
        a_place_where_nobody_listens_is_told
        a_wrong_key_that_is_called_a_failure_is_not_asked_again
        a_model_that_is_being_loaded_is_waited_for
        a_model_that_is_loaded_for_too_long_is_told;
    circuits:
        a_circuit_opens_after_failures_and_asks_nobody
        a_circuit_closes_when_the_server_is_back
        a_failed_probe_keeps_the_circuit_open
        a_dropped_probe_makes_room_for_another
        wrong_keys_open_no_circuit
        answers_that_are_cut_open_the_circuit
        each_place_has_a_circuit_of_its_own
        the_questions_of_one_run_count_once
        a_run_that_was_admitted_is_not_refused_later
        a_run_of_a_person_is_never_refused_and_probes
        providers_of_one_server_share_its_circuit;
    settings:
        the_models_of_a_server_are_listed
        without_a_model_the_choice_is_told
        the_model_of_the_settings_is_the_default
        the_environment_names_the_place_first
        a_place_that_is_none_is_told
        a_missing_key_is_told_with_what_to_set
        a_key_is_found_in_the_file
        a_file_of_keys_that_others_can_read_is_refused
        a_header_that_cannot_be_sent_is_told
        settings_do_not_show_what_is_secret;
}

#[tokio::test]
async fn a_running_ollama_is_found() {
    settings::a_running_ollama_is_found().await;
}

#[tokio::test]
async fn providers_of_other_names_have_variables_of_their_own() {
    settings::providers_of_other_names_have_variables_of_their_own().await;
}

#[test]
fn every_kind_of_error_is_documented() {
    let page = include_str!("../docs/providers.md");
    let (_, errors) = page.split_once("## Errors").unwrap();
    let (table, _) = errors.split_once("## Bounds").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), Kind::ALL.len());
    for (row, kind) in rows.iter().zip(Kind::ALL) {
        assert!(row.starts_with(&format!("| `{kind}` |")), "{row} stands where {kind} should");
        let again = if kind.retryable() { "| yes |" } else { "| no |" };
        assert!(row.ends_with(again), "{row}");
    }
}
