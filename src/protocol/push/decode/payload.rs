//! Decodes the payload of each request.

use std::path::Path;

use super::DecodeLimits;
use super::fields::Fields;
use super::request_error::{FieldError, LengthLimit, RequestError};
use crate::kernel::event::{ApprovalScope, Budget, Criterion, Decision, Image};
use crate::kernel::id::{CallId, GateId, MessageId, RunId, Seq, SessionId};
use crate::protocol::intent::{
    ApprovalDecision, Attach, Fork, Intent, ListSessions, ParticipantIntent, Prompt, Search, SearchKind, SessionIntent,
    SnapshotMode, StartSession, StatsQuery, SwitchProtocol, Token, UserCommand,
};
use crate::protocol::push::wire::request::{PlainRequest, RequestType, SessionRequest};

/// Decodes the parameters of a request and the session it names.
pub(super) fn read(
    request: RequestType,
    envelope_session: Option<String>,
    fields: &Fields<'_>,
    limits: &DecodeLimits,
) -> Result<(Option<SessionId>, Intent), RequestError> {
    let reader = PayloadReader { fields, limits };
    let request = match request {
        RequestType::Plain(request) => request,
        RequestType::OfSession(request) => {
            let Some(id) = reader.session(envelope_session)? else {
                return Err(fields.error("sessionId", FieldError::Missing));
            };
            let body = reader.session_request(request)?;
            return Ok((Some(id.clone()), Intent::Session { id, body }));
        }
    };
    let body = match request {
        PlainRequest::Hello => reader.hello()?,
        PlainRequest::Ping => Intent::Ping,
        PlainRequest::Reload => Intent::Reload,
        PlainRequest::StartSession => Intent::StartSession(Box::new(reader.start_session()?)),
        PlainRequest::ListSessions => reader.list_sessions()?,
        PlainRequest::Search => Intent::Search(Box::new(reader.search()?)),
        PlainRequest::GetStats => Intent::Stats(reader.stats()?),
        PlainRequest::ListGrants => Intent::ListGrants,
        PlainRequest::RevokeGrant => Intent::RevokeGrant { id: fields.required_text("grantId", reader.id())? },
        PlainRequest::ListProviders => Intent::ListProviders,
        PlainRequest::GetMetrics => Intent::Metrics { sandbox: fields.flag("sandbox")?.unwrap_or(false) },
        PlainRequest::CheckJournal => Intent::CheckJournal { full: fields.flag("full")?.unwrap_or(false) },
        PlainRequest::Speak => Intent::SwitchProtocol(Box::new(reader.switch_protocol()?)),
        PlainRequest::Drain => Intent::Drain { grace_ms: fields.number("graceMs")? },
        PlainRequest::ListApprovals => {
            let session = reader.session(envelope_session)?;
            let known = fields.number("knownRevision")?;
            return Ok((session.clone(), Intent::ListApprovals { session, known }));
        }
    };
    // These payloads have no session id; the response echoes that of the envelope.
    Ok((envelope_session.map(SessionId::from), body))
}

struct PayloadReader<'r, 'a> {
    fields: &'r Fields<'a>,
    limits: &'r DecodeLimits,
}

impl PayloadReader<'_, '_> {
    fn session(&self, envelope: Option<String>) -> Result<Option<SessionId>, RequestError> {
        match (envelope, self.fields.non_empty_text("sessionId", self.id())?) {
            (Some(outer), Some(inner)) if outer != inner => Err(RequestError::SessionMismatch),
            (outer, inner) => Ok(outer.or(inner).map(SessionId::from)),
        }
    }

    fn hello(&self) -> Result<Intent, RequestError> {
        Ok(Intent::Hello {
            client_name: self.fields.optional_text("clientName", self.name())?,
            client_version: self.fields.optional_text("clientVersion", self.name())?,
            capabilities: self.fields.texts("capabilities", self.limits.capabilities, self.name())?,
        })
    }

    fn start_session(&self) -> Result<StartSession, RequestError> {
        let fields = self.fields;
        let object = LengthLimit::Bytes(self.limits.object);
        let word = |name, default: &str| -> Result<String, RequestError> {
            Ok(fields.optional_text(name, self.name())?.unwrap_or_else(|| default.to_owned()))
        };
        Ok(StartSession {
            mode: self.mode(word("mode", "interactive")?)?,
            provider: fields.optional_text("provider", self.name())?,
            sandbox_provider: fields.optional_text("sandboxProvider", self.name())?,
            repo: fields.object("repo", object)?,
            cwd: self.directory()?,
            model: fields.optional_text("model", self.name())?,
            name: fields.optional_text("name", self.name())?,
            metadata: fields.object("metadata", object)?,
            environment: fields.environment(self.limits)?,
            idempotency_key: fields.non_empty_text("idempotencyKey", self.id())?,
        })
    }

    fn mode(&self, word: String) -> Result<String, RequestError> {
        match word.as_str() {
            "interactive" | "headless" => Ok(word),
            _ => Err(self.fields.error("mode", FieldError::UnknownWord { allowed: "\"interactive\" or \"headless\"" })),
        }
    }

    fn directory(&self) -> Result<String, RequestError> {
        let path = LengthLimit::Bytes(self.limits.path);
        if let Some(cwd) = self.fields.optional_text("cwd", path)? {
            return require_absolute(cwd).map_err(|error| self.fields.error("cwd", error));
        }
        let repo = self.fields.nested("repo")?;
        match repo.optional_text("rootPath", path)? {
            Some(root) => require_absolute(root).map_err(|error| repo.error("rootPath", error)),
            None => Err(RequestError::MissingDirectory),
        }
    }

    fn switch_protocol(&self) -> Result<SwitchProtocol, RequestError> {
        let fields = self.fields;
        let protocol = fields.required_text("protocol", self.name())?;
        let cwd = fields.optional_text("cwd", LengthLimit::Bytes(self.limits.path))?;
        let cwd = cwd.map(|cwd| require_absolute(cwd).map_err(|error| fields.error("cwd", error))).transpose()?;
        Ok(SwitchProtocol { protocol, cwd, environment: fields.environment(self.limits)? })
    }

    fn list_sessions(&self) -> Result<Intent, RequestError> {
        Ok(Intent::ListSessions(ListSessions {
            limit: self.fields.page("limit", 20, self.limits.page)?,
            cursor: self.fields.optional_text("cursor", LengthLimit::Chars(4 * self.limits.id))?,
            prefix: self.fields.optional_text("prefix", self.id())?,
            include_ended: self.fields.flag("includeEnded")?.unwrap_or(false),
        }))
    }

    fn search(&self) -> Result<Search, RequestError> {
        let fields = self.fields;
        let kind = |word: String| match word.as_str() {
            "message" => Ok(SearchKind::Message),
            "tool" => Ok(SearchKind::Tool),
            "name" => Ok(SearchKind::Name),
            _ => Err(fields.error("kinds", FieldError::UnknownWord { allowed: "\"message\", \"tool\" or \"name\"" })),
        };
        let kinds = fields.texts("kinds", MAX_KINDS, self.name())?;
        Ok(Search {
            text: fields.required_text("text", LengthLimit::Chars(MAX_SEARCH_CHARS))?,
            kinds: kinds.into_iter().map(kind).collect::<Result<_, _>>()?,
            since: fields.number("since")?,
            directory: self.searched_directory()?,
            limit: fields.page("limit", 20, self.limits.page)?,
        })
    }

    fn stats(&self) -> Result<StatsQuery, RequestError> {
        let by_session = self.fields.flag("bySession")?.unwrap_or(false);
        Ok(StatsQuery { since: self.fields.number("since")?, directory: self.searched_directory()?, by_session })
    }

    fn searched_directory(&self) -> Result<Option<String>, RequestError> {
        let directory = self.fields.optional_text("directory", LengthLimit::Bytes(self.limits.path))?;
        directory.map(|path| require_absolute(path).map_err(|error| self.fields.error("directory", error))).transpose()
    }

    fn session_request(&self, request: SessionRequest) -> Result<SessionIntent, RequestError> {
        Ok(match request {
            SessionRequest::AttachSession => SessionIntent::Attach(Box::new(self.attach(SnapshotMode::AfterGap)?)),
            SessionRequest::ResumeSession => SessionIntent::Attach(Box::new(self.attach(SnapshotMode::Always)?)),
            SessionRequest::SendUserMessage => SessionIntent::Prompt(Box::new(self.prompt()?)),
            SessionRequest::QueueMessage => SessionIntent::Queue(Box::new(self.prompt()?)),
            SessionRequest::ListQueue => SessionIntent::ListQueue,
            SessionRequest::ListParticipants => SessionIntent::Participant(ParticipantIntent::List),
            SessionRequest::RemoveQueued => {
                SessionIntent::Unqueue { message: MessageId::from(self.fields.required_text("messageId", self.id())?) }
            }
            SessionRequest::Steer => {
                let (message, text) = (self.message_id()?, self.message_text()?);
                SessionIntent::Steer { message, text, images: self.images()? }
            }
            SessionRequest::SubmitApproval => SessionIntent::Decide(Box::new(self.approval_decision()?)),
            SessionRequest::CancelRun => SessionIntent::Cancel {
                run: self.run_id()?,
                reason: self
                    .fields
                    .optional_text("reason", self.name())?
                    .unwrap_or_else(|| "user_cancelled".to_owned()),
            },
            SessionRequest::RunUserCommand => SessionIntent::UserCommand(Box::new(self.user_command()?)),
            SessionRequest::StopUserCommand => SessionIntent::StopUserCommand {
                call: self.fields.non_empty_text("callId", self.id())?.map(CallId::from),
            },
            SessionRequest::GetSessionSnapshot => SessionIntent::Snapshot,
            SessionRequest::GetSessionMessages => SessionIntent::Messages {
                after: Seq::new(self.fields.number("afterSeq")?.unwrap_or(0)),
                limit: self.fields.page("limit", 100, self.limits.page)?,
            },
            SessionRequest::RenameSession => {
                SessionIntent::Rename { name: self.fields.required_text("name", self.name())? }
            }
            SessionRequest::EndSession => SessionIntent::End,
            SessionRequest::CompactSession => SessionIntent::Compact {
                instructions: self.fields.optional_text("instructions", LengthLimit::Bytes(self.limits.comment))?,
                environment: self.fields.environment(self.limits)?,
            },
            SessionRequest::ForkSession => SessionIntent::Fork(Box::new(Fork {
                at: self.fields.number("atSeq")?.map(Seq::new),
                name: self.fields.non_empty_text("name", self.name())?,
                idempotency_key: self.fields.non_empty_text("idempotencyKey", self.id())?,
            })),
            SessionRequest::DeleteSession => {
                let dry_run = self.fields.flag("dryRun")?.unwrap_or(false);
                let with_imported_files = self.fields.flag("withPiFiles")?.unwrap_or(false);
                SessionIntent::Delete { dry_run, with_imported_files }
            }
            SessionRequest::DetachSession => SessionIntent::Detach,
        })
    }

    fn attach(&self, snapshot: SnapshotMode) -> Result<Attach, RequestError> {
        Ok(Attach {
            seen: Seq::new(self.fields.number("lastSeenSeq")?.unwrap_or(0)),
            snapshot,
            token: self.fields.optional_text("attachToken", self.id())?.map(Token::new),
            read_only: self.fields.flag("readOnly")?.unwrap_or(false),
            as_owner: self.fields.flag("asOwner")?.unwrap_or(false),
            environment: self.fields.environment(self.limits)?,
        })
    }

    fn prompt(&self) -> Result<Prompt, RequestError> {
        let criteria = self.fields.objects("acceptanceCriteria", self.limits.criteria)?;
        Ok(Prompt {
            message: self.message_id()?,
            text: self.message_text()?,
            images: self.images()?,
            criteria: criteria
                .iter()
                .enumerate()
                .map(|(at, item)| self.criterion(at, item))
                .collect::<Result<_, _>>()?,
            time_limit: self.fields.positive("timeoutMs")?,
            budget: self.budget()?,
            rules: self.fields.texts("rules", self.limits.rules, LengthLimit::Bytes(self.limits.comment))?,
            environment: self.fields.environment(self.limits)?,
        })
    }

    fn user_command(&self) -> Result<UserCommand, RequestError> {
        let command = self.fields.required_text("command", LengthLimit::Bytes(self.limits.check))?;
        if command.contains('\0') {
            return Err(self.fields.error("command", FieldError::ContainsNul));
        }
        let in_context = !self.fields.flag("excludeFromContext")?.unwrap_or(false);
        Ok(UserCommand { command, in_context, environment: self.fields.environment(self.limits)? })
    }

    fn budget(&self) -> Result<Budget, RequestError> {
        let budget = self.fields.nested("budget")?;
        Ok(Budget {
            cost: budget.millionths("maxCostUsd")?,
            turns: budget.positive("maxTurns")?,
            tokens: budget.positive("maxTokens")?,
        })
    }

    fn criterion(&self, at: usize, item: &Fields<'_>) -> Result<Criterion, RequestError> {
        let check = item.required_text("check", LengthLimit::Bytes(self.limits.check))?;
        if check.contains('\0') {
            return Err(item.error("check", FieldError::ContainsNul));
        }
        Ok(Criterion {
            id: item.optional_text("id", self.id())?.unwrap_or_else(|| format!("check-{}", at + 1)),
            check,
            exit_code: item.exit_code("exitCode")?.unwrap_or(0),
            description: item.optional_text("description", LengthLimit::Bytes(self.limits.comment))?,
        })
    }

    fn approval_decision(&self) -> Result<ApprovalDecision, RequestError> {
        let fields = self.fields;
        let decision = match fields.required_text("decision", self.name())?.as_str() {
            "approve" => Decision::Approve,
            "deny" => Decision::Deny,
            _ => {
                let allowed = "\"approve\" or \"deny\"";
                return Err(fields.error("decision", FieldError::UnknownWord { allowed }));
            }
        };
        let scope = match fields.optional_text("scope", self.name())?.as_deref() {
            None | Some("once") => ApprovalScope::Once,
            Some("run") => ApprovalScope::Run,
            Some("session") => ApprovalScope::Session,
            Some("always") => ApprovalScope::Always,
            Some(_) => {
                let allowed = "\"once\", \"run\", \"session\" or \"always\"";
                return Err(fields.error("scope", FieldError::UnknownWord { allowed }));
            }
        };
        Ok(ApprovalDecision {
            gate: GateId::from(fields.required_text("approvalId", self.id())?),
            run: self.run_id()?,
            decision,
            choice: fields.optional_text("choice", self.name())?,
            comment: fields.optional_text("comment", LengthLimit::Bytes(self.limits.comment))?,
            scope,
            rule: fields.non_empty_text("rule", LengthLimit::Bytes(self.limits.comment))?,
            answer: fields.json("answer", LengthLimit::Bytes(self.limits.answer))?,
            environment: fields.environment(self.limits)?,
        })
    }

    /// Reads the images of a message: each has a media type, and their total size is bounded.
    fn images(&self) -> Result<Vec<Image>, RequestError> {
        let bound = LengthLimit::Bytes(self.limits.image_bytes);
        let mut images = Vec::new();
        let mut bytes = 0;
        for item in self.fields.objects("images", self.limits.images)? {
            let mime = item.required_text("mimeType", self.id())?;
            if !IMAGE_TYPES.contains(&mime.as_str()) {
                let allowed = "\"image/png\", \"image/jpeg\", \"image/gif\" or \"image/webp\"";
                return Err(item.error("mimeType", FieldError::UnknownWord { allowed }));
            }
            let data = item.required_text("data", bound)?;
            if !is_base64(&data) {
                return Err(item.error("data", FieldError::NotBase64));
            }
            bytes += data.len();
            images.push(Image { mime, data });
        }
        if bytes > self.limits.image_bytes {
            return Err(self.fields.error("images", FieldError::TooLong { bound }));
        }
        Ok(images)
    }

    fn message_text(&self) -> Result<String, RequestError> {
        self.fields.required_text("text", LengthLimit::Bytes(self.limits.text))
    }

    fn message_id(&self) -> Result<Option<MessageId>, RequestError> {
        Ok(self.fields.non_empty_text("clientMessageId", self.id())?.map(MessageId::from))
    }

    fn run_id(&self) -> Result<Option<RunId>, RequestError> {
        Ok(self.fields.non_empty_text("runId", self.id())?.map(RunId::from))
    }

    const fn id(&self) -> LengthLimit {
        LengthLimit::Chars(self.limits.id)
    }

    const fn name(&self) -> LengthLimit {
        LengthLimit::Chars(self.limits.name)
    }
}

/// The image types that models accept.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns whether a text has the form of padded base64.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len().is_multiple_of(4) && text.len() - digits.len() <= 2 && digits.bytes().all(plain)
}

fn require_absolute(path: String) -> Result<String, FieldError> {
    if path.contains('\0') {
        return Err(FieldError::ContainsNul);
    }
    if !Path::new(&path).is_absolute() {
        return Err(FieldError::RelativePath);
    }
    Ok(path)
}

/// The maximum number of kinds in a search.
const MAX_KINDS: usize = 3;
/// The maximum length of the text of a search.
const MAX_SEARCH_CHARS: usize = 1_000;
