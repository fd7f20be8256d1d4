//! Lines as the specification shows them, and ways to invalidate them.

/// Requests as the specification and the protocol page show them.
pub(crate) const REQUESTS: &[(&str, &str)] = &[
    (
        "hello",
        r#"{"clientName":"push","clientVersion":"0.1.0","capabilities":["stream_tokens","approvals","replay_attach"]}"#,
    ),
    ("hello", r#"{"capabilities":["approvals"]}"#),
    (
        "start_session",
        r#"{"mode":"interactive","provider":"ollama","sandboxProvider":"local","repo":{"rootPath":"/home/user/projects/Push","remoteUrl":"git@github.com:owner/repo.git","currentBranch":"main","defaultBranch":"main"},"metadata":{"source":"cli"}}"#,
    ),
    (
        "start_session",
        r#"{"cwd":"/","model":"m","name":"n","environment":{"PATH":"/bin","EMPTY":""},"idempotencyKey":"k"}"#,
    ),
    ("list_sessions", r#"{"limit":20}"#),
    ("list_sessions", r#"{"cursor":"c","prefix":"sess_0"}"#),
    ("attach_session", r#"{"sessionId":"sess_01HXYZ","lastSeenSeq":135,"attachToken":"att_x"}"#),
    ("attach_session", r#"{"lastSeenSeq":null,"readOnly":true}"#),
    ("resume_session", r#"{"sessionId":"sess_01HXYZ","lastSeenSeq":0}"#),
    ("detach_session", "{}"),
    (
        "send_user_message",
        r#"{"sessionId":"sess_01HXYZ","clientMessageId":"msg_01HXYZ","text":"Review the latest commit and suggest fixes.","acceptanceCriteria":[{"id":"build","check":"npm -C app run build","exitCode":0,"description":"App builds"}]}"#,
    ),
    (
        "send_user_message",
        r#"{"text":"t","acceptanceCriteria":[{"check":"true"}],"timeoutMs":1000,"budget":{"maxCostUsd":0.5,"maxTurns":3,"maxTokens":1000},"rules":["allow: exec(make)"],"environment":{"A":"1"},"future":[]}"#,
    ),
    (
        "submit_approval",
        r#"{"sessionId":"sess_01HXYZ","runId":"run_01HXYZ","approvalId":"appr_01HXYZ","decision":"approve","comment":"Looks good"}"#,
    ),
    ("submit_approval", r#"{"approvalId":"a","decision":"deny","choice":"stop","scope":"once"}"#),
    ("cancel_run", r#"{"sessionId":"sess_01HXYZ","runId":"run_01HXYZ","reason":"user_cancelled"}"#),
    ("cancel_run", "{}"),
    ("ping", "{}"),
    ("get_session_snapshot", "{}"),
    ("get_session_messages", r#"{"afterSeq":3,"limit":10}"#),
    ("steer", r#"{"text":"left","clientMessageId":"m"}"#),
    ("steer", r#"{"text":"this one","images":[{"mimeType":"image/webp","data":"aGk="}]}"#),
    (
        "send_user_message",
        r#"{"text":"what is it?","images":[{"mimeType":"image/png","data":"aGVsbG8="},{"mimeType":"image/jpeg","data":"aGk="}]}"#,
    ),
    ("submit_approval", r#"{"approvalId":"a","decision":"approve","scope":"always","rule":"allow: exec(cargo *)"}"#),
    ("submit_approval", r#"{"approvalId":"a","decision":"approve","answer":"blue"}"#),
    ("submit_approval", r#"{"approvalId":"a","decision":"approve","answer":{"name":"Ann","age":"9"}}"#),
    ("queue_message", r#"{"text":"next","acceptanceCriteria":null}"#),
    ("list_queue", "{}"),
    ("list_participants", "{}"),
    ("remove_queued", r#"{"messageId":"m"}"#),
    ("rename_session", r#"{"name":"n"}"#),
    ("fork_session", "{}"),
    ("fork_session", r#"{"atSeq":7,"name":"n","idempotencyKey":"k"}"#),
    ("end_session", "{}"),
    ("run_user_command", r#"{"command":"make"}"#),
    ("run_user_command", r#"{"command":"make","excludeFromContext":true,"environment":{"PATH":"/bin"}}"#),
    ("stop_user_command", "{}"),
    ("stop_user_command", r#"{"callId":"call_01"}"#),
    ("compact_session", "{}"),
    ("compact_session", r#"{"instructions":"keep the names","environment":{"PATH":"/bin"}}"#),
    ("delete_session", "{}"),
    ("delete_session", r#"{"sessionId":"sess_01HXYZ","dryRun":true}"#),
    ("check_journal", "{}"),
    ("check_journal", r#"{"full":true}"#),
    ("list_approvals", "{}"),
    ("list_approvals", r#"{"knownRevision":0}"#),
    ("submit_approval", r#"{"approvalId":"a","decision":"approve","scope":"always"}"#),
    ("search", r#"{"text":"disk full"}"#),
    ("search", r#"{"text":"disk","kinds":["message","tool"],"since":7,"directory":"/home/me","limit":5}"#),
    ("get_stats", r#"{"since":7,"directory":"/home/me","bySession":true}"#),
    ("list_grants", "{}"),
    ("revoke_grant", r#"{"grantId":"grant_01HXYZ"}"#),
    ("list_providers", "{}"),
    ("get_metrics", "{}"),
    ("get_metrics", r#"{"sandbox":true}"#),
    ("drain", r#"{"graceMs":5000}"#),
    ("reload", "{}"),
    ("speak", r#"{"protocol":"pi","cwd":"/home/me/project","environment":{"PATH":"/bin"}}"#),
    ("speak", r#"{"protocol":"pi","cwd":null}"#),
];

macro_rules! ok {
    ($kind:literal, $payload:literal) => {
        concat!(
            r#"{"v":"push.runtime.v1","kind":"response","requestId":"req_1","type":""#,
            $kind,
            r#"","sessionId":"sess_1","ok":true,"payload":"#,
            $payload,
            r#","error":null}"#
        )
    };
}

macro_rules! event {
    ($kind:literal, $payload:literal) => {
        concat!(
            r#"{"v":"push.runtime.v1","kind":"event","sessionId":"sess_1","runId":"run_1","seq":42,"#,
            r#""ts":1760000000000,"type":""#,
            $kind,
            r#"","payload":"#,
            $payload,
            "}"
        )
    };
}

macro_rules! session_event {
    ($kind:literal, $payload:literal) => {
        concat!(
            r#"{"v":"push.runtime.v1","kind":"event","sessionId":"sess_1","seq":42,"ts":1760000000000,"type":""#,
            $kind,
            r#"","payload":"#,
            $payload,
            "}"
        )
    };
}

/// Responses and events as the specification shows them, with the fields that are always added.
pub(crate) const SPECIFIED: &[&str] = &[
    ok!(
        "hello",
        r#"{"runtimeName":"pushd","runtimeVersion":"0.1.0","protocolVersion":"push.runtime.v1","capabilities":["stream_tokens","approvals","replay_attach","headless"],"homeDirectory":"/home/me"}"#
    ),
    ok!("start_session", r#"{"sessionId":"sess_1","state":"idle","attachToken":"att_x"}"#),
    ok!(
        "list_sessions",
        r#"{"sessions":[{"sessionId":"sess_1","state":"idle","updatedAt":1760000000000,"repo":{"rootPath":"/home/user/projects/Push","currentBranch":"main"},"cwd":"/home/user/projects/Push","provider":"ollama"}]}"#
    ),
    ok!(
        "attach_session",
        r#"{"sessionId":"sess_1","state":"running","replay":{"fromSeq":136,"toSeq":149,"completed":true,"gap":false}}"#
    ),
    ok!("send_user_message", r#"{"runId":"run_1","accepted":true}"#),
    ok!("submit_approval", r#"{"accepted":true}"#),
    ok!("ping", r#"{"pong":true,"ts":1760000000000}"#),
    r#"{"v":"push.runtime.v1","kind":"response","requestId":"req_1","type":"cancel_run","ok":false,"payload":{},"error":{"code":"NO_ACTIVE_RUN","message":"no such run","retryable":false}}"#,
    session_event!(
        "session_started",
        r#"{"sessionId":"sess_1","state":"idle","mode":"interactive","provider":"ollama","sandboxProvider":"local","cwd":"/home/user/projects/Push"}"#
    ),
    session_event!(
        "session_snapshot",
        r#"{"state":"running","activeRunId":"run_1","lastAssistantText":"...","pendingApproval":null,"meta":{"provider":"ollama","sandboxProvider":"local","cwd":"/","mode":"interactive"},"lastSeq":41,"queued":0,"ended":false,"openedAt":1,"updatedAt":2}"#
    ),
    event!(
        "status",
        r#"{"source":"orchestrator","phase":"Executing tool...","detail":"sandbox_read_file","callId":"call_1"}"#
    ),
    event!("thinking_token", r#"{"text":"Need to inspect recent commit..."}"#),
    event!("assistant_token", r#"{"text":"I reviewed the commit and found..."}"#),
    event!("assistant_done", r#"{"messageId":"asst_1"}"#),
    r#"{"v":"push.runtime.v1","kind":"event","sessionId":"sess_1","seq":42,"ts":1760000000000,"sessionVersion":3,"type":"session_touched","payload":{"what":"export","by":"cli"}}"#,
    session_event!("session_loaded", r#"{"by":"cli"}"#),
    session_event!(
        "session_adjusted",
        r#"{"provider":"openai","model":"m","thinking":"high","autoCompaction":false,"autoRetry":true,"by":"cli"}"#
    ),
    session_event!("session_branched", r#"{"untilSeq":12,"fromSeq":1,"by":"cli"}"#),
    session_event!("compaction_started", r#"{"reason":"manual","by":"cli"}"#),
    event!("compaction_started", r#"{"reason":"overflow"}"#),
    event!("compaction_ended", r#"{"ending":"failed","message":"no","again":true}"#),
    event!("retry_started", r#"{"attempt":1,"maxAttempts":3,"delayMs":500,"message":"overloaded"}"#),
    event!("retry_ended", r#"{"succeeded":true,"attempt":1}"#),
    event!(
        "tool_call",
        r#"{"source":"sandbox","toolName":"sandbox_read_file","args":{"path":"app/src/hooks/useChat.ts"},"callId":"call_1"}"#
    ),
    session_event!(
        "tool_call",
        r#"{"source":"user","toolName":"sandbox_exec","args":{"command":"make"},"callId":"call_2","excludeFromContext":true}"#
    ),
    event!(
        "tool_call",
        r#"{"source":"sandbox","toolName":"sandbox_exec","args":{"command":"make"},"callId":"call_2","purpose":"user","excludeFromContext":true}"#
    ),
    event!("tool_output", r#"{"callId":"call_1","stream":"stdout","text":"..."}"#),
    event!(
        "tool_result",
        r#"{"source":"sandbox","toolName":"sandbox_read_file","durationMs":124,"isError":false,"text":"...","structuredError":null,"callId":"call_1","status":"done"}"#
    ),
    event!(
        "tool_result",
        r#"{"source":"sandbox","toolName":"sandbox_exec","durationMs":124,"isError":true,"text":"ended by signal 9","noOutput":true,"structuredError":{"type":"EXEC_NON_ZERO_EXIT","retryable":false,"message":"ended by signal 9","detail":"SIGNAL","code":"SIGNAL"},"callId":"call_2","status":"failed","exitCode":137,"purpose":"acceptance","check":0}"#
    ),
    event!(
        "approval_required",
        r#"{"approvalId":"appr_1","kind":"commit","title":"Approve commit","summary":"feat: improve tool-call parsing","details":{"filesChanged":4,"insertions":120,"deletions":40},"options":["approve","deny"],"expiresAt":1760000300000,"callId":"call_1"}"#
    ),
    event!("approval_received", r#"{"approvalId":"appr_1","decision":"approve","by":"cli"}"#),
    session_event!(
        "warning",
        r#"{"code":"EVENT_GAP","message":"Replay gap detected; snapshot sent.","detail":"Requested lastSeenSeq=120 but earliest retained seq is 140"}"#
    ),
    event!(
        "error",
        r#"{"code":"SANDBOX_UNAVAILABLE","message":"Sandbox provider failed to start workspace.","retryable":true,"detail":"modal endpoint timeout"}"#
    ),
    event!(
        "run_complete",
        r#"{"runId":"run_1","outcome":"success","summary":"Implemented fix and verified build passes.","acceptance":{"total":1,"passed":1,"results":[{"id":"build","passed":true,"exitCode":0,"output":""}]},"headless":{"exitCodeHint":0}}"#
    ),
    event!(
        "user_message",
        r#"{"messageId":"msg_1","text":"hi","by":"cli","fingerprint":"00000000000000000000000000000001"}"#
    ),
    event!(
        "user_message",
        r#"{"messageId":"msg_1","text":"hi","chars":2,"preview":"hi","by":"cli","fingerprint":"00000000000000000000000000000001"}"#
    ),
    event!("run_recovered", r#"{"found":"unknown"}"#),
    event!(
        "usage",
        r#"{"model":"m","inputTokens":1,"outputTokens":2,"cacheReadTokens":3,"costMicroUsd":4,"estimated":true,"carry":"c","pending":[{"toolName":"sandbox_exec","args":{}}]}"#
    ),
    event!("context_compacted", r#"{"summary":"s","keptFromSeq":3,"tokensBefore":100}"#),
    session_event!("events_lost", r#"{"afterSeq":3,"untilSeq":7,"cause":"damage"}"#),
    session_event!(
        "message_queued",
        r#"{"messageId":"msg_1","text":"hi","by":"cli","fingerprint":"00000000000000000000000000000001","needsEnvironment":true,"queuedRunId":"run_2"}"#
    ),
    session_event!("session_ended", r#"{"by":"cli"}"#),
];

/// A line of [`SPECIFIED`] by its type, a part of it, and a replacement that makes it invalid.
pub(crate) const BROKEN: &[(&str, &str, &str)] = &[
    ("assistant_token", r#""v":"push.runtime.v1","#, ""),
    ("assistant_token", "push.runtime.v1", "push.runtime.v2"),
    ("assistant_token", r#""kind":"event""#, r#""kind":"Event""#),
    ("assistant_token", r#""seq":42,"#, ""),
    ("assistant_token", r#""seq":42"#, r#""seq":"42""#),
    ("assistant_token", r#""seq":42"#, r#""seq":0"#),
    ("assistant_token", r#""seq":42"#, r#""seq":4.5"#),
    ("assistant_token", r#""ts":1760000000000,"#, ""),
    ("assistant_token", r#""sessionId":"sess_1""#, r#""sessionId":null"#),
    ("assistant_token", r#""sessionId":"sess_1""#, r#""sessionId":"""#),
    ("assistant_token", r#""sessionId":"sess_1","#, ""),
    ("assistant_token", r#""runId":"run_1","#, ""),
    ("assistant_token", r#""runId":"run_1""#, r#""runId":null"#),
    ("assistant_token", r#""text":"#, r#""token":"#),
    ("assistant_token", r#"{"text""#, r#"{"extra":1,"text""#),
    ("assistant_token", r#""type":"assistant_token""#, r#""type":"unknown_event""#),
    ("assistant_token", r#""kind":"event""#, r#""kind":"event","requestId":"q""#),
    ("assistant_done", r#"{"messageId":"asst_1"}"#, "{}"),
    ("session_started", r#""seq":42"#, r#""runId":"run_1","seq":42"#),
    ("session_started", r#""state":"idle""#, r#""state":"running""#),
    ("session_started", r#","cwd":"/home/user/projects/Push""#, ""),
    ("session_snapshot", r#""activeRunId":"run_1","#, ""),
    ("session_snapshot", r#""pendingApproval":null"#, r#""pendingApproval":{}"#),
    ("session_snapshot", r#""state":"running""#, r#""state":"busy""#),
    ("status", r#""phase":"Executing tool...""#, r#""phase":"Else""#),
    ("status", r#""callId":"call_1""#, r#""callId":"call_1","stopping":{"outcome":"failed","by":"cli"}"#),
    ("tool_call", r#""source":"sandbox""#, r#""source":"acceptance""#),
    ("tool_call", r#""source":"sandbox""#, r#""source":"elsewhere""#),
    ("tool_call", r#""args":{"path":"app/src/hooks/useChat.ts"}"#, r#""args":[]"#),
    ("tool_call", r#","callId":"call_1""#, ""),
    ("session_touched", r#""sessionVersion":3"#, r#""sessionVersion":-1"#),
    ("session_adjusted", r#""autoRetry":true"#, r#""autoRetry":"yes""#),
    ("session_branched", r#""untilSeq":12,"#, ""),
    ("compaction_started", "manual", "whim"),
    ("compaction_ended", r#""again":true"#, r#""again":false"#),
    ("retry_started", r#""delayMs":500,"#, ""),
    ("retry_ended", r#""succeeded":true,"#, ""),
    ("tool_output", "stdout", "stdin"),
    ("tool_result", r#""isError":false"#, r#""isError":true"#),
    ("tool_result", r#""isError":false"#, r#""isError":0"#),
    ("tool_result", r#""structuredError":null,"#, ""),
    ("tool_result", r#""structuredError":null"#, r#""structuredError":{"type":"X"}"#),
    (
        "tool_result",
        r#""structuredError":null"#,
        r#""structuredError":{"type":"SIGNAL","retryable":false,"message":"m","detail":"SIGNAL","code":"SIGNAL"}"#,
    ),
    ("tool_result", r#""status":"done""#, r#""status":"done","noOutput":true"#),
    ("tool_result", r#""source":"sandbox""#, r#""source":"sandbox","purpose":"acceptance""#),
    ("tool_result", r#""durationMs":124"#, r#""durationMs":-1"#),
    ("tool_result", r#""status":"done""#, r#""status":"done","exitCode":null"#),
    ("approval_required", r#"["approve","deny"]"#, r#"["approve"]"#),
    ("approval_required", r#""filesChanged":4"#, r#""choices":[]"#),
    ("approval_required", r#""callId":"call_1""#, r#""callId":"call_1","needed":1"#),
    ("approval_required", r#""callId":"call_1""#, r#""callId":"call_1","choices":["a"]"#),
    ("approval_received", r#""decision":"approve""#, r#""decision":"approved""#),
    ("approval_received", r#","by":"cli""#, ""),
    ("warning", r#""code":"EVENT_GAP","#, ""),
    ("error", r#""retryable":true"#, r#""retryable":"yes""#),
    ("run_complete", r#""exitCodeHint":0"#, r#""exitCodeHint":1"#),
    ("run_complete", r#""exitCodeHint":0"#, r#""exitCodeHint":7"#),
    ("run_complete", r#""outcome":"success""#, r#""outcome":"completed""#),
    ("run_complete", r#","headless":{"exitCodeHint":0}"#, ""),
    ("run_complete", r#""exitCode":0,"#, ""),
    ("user_message", "00000000000000000000000000000001", "1"),
    ("user_message", r#""by":"cli""#, r#""by":"cli","delivery":"steer","timeoutMs":5"#),
    ("user_message", r#""by":"cli""#, r#""by":"cli","queuedRunId":"run_2""#),
    ("user_message", r#""by":"cli""#, r#""by":"cli","acceptanceCriteria":[]"#),
    ("user_message", r#""by":"cli""#, r#""by":"cli","needsEnvironment":false"#),
    ("message_queued", r#","queuedRunId":"run_2""#, ""),
    ("run_recovered", "unknown", "lost"),
    ("events_lost", "damage", "mice"),
    ("events_lost", r#""afterSeq":3,"#, ""),
    ("session_ended", r#"{"by":"cli"}"#, r#"{"by":""}"#),
    ("hello", r#""runtimeName":"pushd""#, r#""runtimeName":"other""#),
    ("hello", r#""protocolVersion":"push.runtime.v1""#, r#""protocolVersion":"v1""#),
    ("hello", r#""runtimeVersion":"0.1.0""#, r#""runtimeVersion":"0.1.0","buildStamp":"x""#),
    ("ping", r#""requestId":"req_1","#, ""),
    ("ping", r#""requestId":"req_1""#, r#""requestId":7"#),
    ("ping", r#""sessionId":"sess_1""#, r#""sessionId":null"#),
    ("ping", r#""pong":true"#, r#""pong":false"#),
    ("ping", r#","error":null"#, ""),
    ("ping", r#""ok":true"#, r#""ok":false"#),
    ("ping", r#""ok":true,"#, ""),
    ("ping", r#""error":null"#, r#""error":{"code":"INTERNAL_ERROR","message":"m","retryable":true}"#),
    ("ping", r#""type":"ping""#, r#""type":"pong""#),
    ("start_session", r#","attachToken":"att_x""#, ""),
    ("start_session", r#""attachToken":"att_x""#, r#""attachToken":"att_x","repeated":false"#),
    ("attach_session", r#""fromSeq":136,"#, ""),
    ("attach_session", r#""gap":false"#, r#""gap":null"#),
    ("list_sessions", r#""state":"idle""#, r#""state":"ended""#),
    ("list_sessions", r#""provider":"ollama""#, r#""provider":"ollama","model":null"#),
    ("send_user_message", r#""accepted":true"#, r#""accepted":false"#),
    ("cancel_run", "NO_ACTIVE_RUN", "NO_RUN"),
    ("cancel_run", r#""payload":{}"#, r#""payload":{"accepted":false}"#),
    ("cancel_run", r#","retryable":false"#, ""),
    ("cancel_run", r#""retryable":false"#, r#""retryable":false,"detail":null"#),
];

/// Payloads of requests that name no session in their envelope.
pub(crate) const BROKEN_REQUESTS: &[(&str, &str)] = &[
    ("fly", "{}"),
    ("hello", r#"{"capabilities":"all"}"#),
    ("start_session", "{}"),
    ("start_session", r#"{"repo":{"currentBranch":"main"}}"#),
    ("start_session", r#"{"cwd":"/","provider":1}"#),
    ("start_session", r#"{"cwd":"/","environment":{"A=B":"1"}}"#),
    ("start_session", r#"{"cwd":"/","environment":{"A":"\u0000"}}"#),
    ("start_session", r#"{"cwd":"/","environment":{"A":1}}"#),
    ("list_sessions", r#"{"limit":0}"#),
    ("attach_session", r#"{"lastSeenSeq":1}"#),
    ("attach_session", r#"{"sessionId":"s","lastSeenSeq":-1}"#),
    ("attach_session", r#"{"sessionId":"s","lastSeenSeq":1.5}"#),
    ("send_user_message", r#"{"sessionId":"s","text":""}"#),
    ("send_user_message", r#"{"sessionId":"s","text":"t","acceptanceCriteria":[{"id":"a"}]}"#),
    ("send_user_message", r#"{"sessionId":"s","text":"t","images":"aGk="}"#),
    ("send_user_message", r#"{"sessionId":"s","text":"t","images":[{"data":"aGk="}]}"#),
    ("send_user_message", r#"{"sessionId":"s","text":"t","images":[{"mimeType":"image/png","data":""}]}"#),
    ("queue_message", r#"{"sessionId":"s","text":"t","images":[{"mimeType":"image/svg+xml","data":"aGk="}]}"#),
    ("steer", r#"{"sessionId":"s","text":"t","images":[{"mimeType":"image/png","data":"not base64"}]}"#),
    ("submit_approval", r#"{"sessionId":"s","approvalId":"a","decision":"maybe"}"#),
    ("submit_approval", r#"{"sessionId":"s","approvalId":"a","decision":"deny","scope":"ever"}"#),
    ("submit_approval", r#"{"sessionId":"s","approvalId":"a","decision":"approve","scope":"run","rule":7}"#),
    ("submit_approval", r#"{"sessionId":"s","approvalId":"a","decision":"approve","scope":"run","rule":""}"#),
    ("remove_queued", r#"{"sessionId":"s"}"#),
    ("rename_session", r#"{"sessionId":"s","name":""}"#),
    ("fork_session", r#"{"sessionId":"s","atSeq":-1}"#),
    ("fork_session", r#"{"sessionId":"s","name":""}"#),
    ("fork_session", r#"{"sessionId":"s","idempotencyKey":""}"#),
    ("start_session", r#"{"cwd":"/","mode":"batch"}"#),
    ("steer", r#"{"sessionId":"s"}"#),
    ("compact_session", "{}"),
    ("compact_session", r#"{"sessionId":"s","instructions":7}"#),
    ("run_user_command", r#"{"sessionId":"s"}"#),
    ("run_user_command", r#"{"sessionId":"s","command":""}"#),
    ("run_user_command", r#"{"sessionId":"s","command":"x","excludeFromContext":"no"}"#),
    ("stop_user_command", "{}"),
    ("stop_user_command", r#"{"sessionId":"s","callId":7}"#),
    ("delete_session", "{}"),
    ("delete_session", r#"{"sessionId":"s","dryRun":"maybe"}"#),
    ("check_journal", r#"{"full":1}"#),
    ("drain", r#"{"graceMs":"soon"}"#),
];
