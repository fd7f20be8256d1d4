//! Decodes the payload of each request.

use std::path::Path;

use super::DecodeLimits;
use super::ask::{
    Ask, Attach, Decide, ListSessions, Prompt, Protocol, SessionAsk, Speak, StartSession, Summary, Token,
};
use super::fields::Fields;
use super::problem::{Bound, Fault, Problem};
use crate::kernel::event::{Budget, Criterion, Decision, Image, Lasting};
use crate::kernel::id::{GateId, MessageId, RunId, Seq, SessionId};
use crate::protocol::push::wire::request::{PlainRequest, RequestType, SessionRequest};

/// Decodes the parameters of a request and the session it names.
pub(super) fn read(
    request: RequestType,
    envelope_session: Option<String>,
    fields: &Fields<'_>,
    limits: &DecodeLimits,
) -> Result<(Option<SessionId>, Ask), Problem> {
    let reader = Reader { fields, limits };
    let request = match request {
        RequestType::Plain(request) => request,
        RequestType::OfSession(request) => {
            let Some(id) = reader.session(envelope_session)? else {
                return Err(fields.fault("sessionId", Fault::Missing));
            };
            let ask = reader.session_ask(request)?;
            return Ok((Some(id.clone()), Ask::Session { id, ask }));
        }
    };
    let ask = match request {
        PlainRequest::Hello => reader.hello()?,
        PlainRequest::Ping => Ask::Ping,
        PlainRequest::Reload => Ask::Reload,
        PlainRequest::StartSession => Ask::StartSession(Box::new(reader.start_session()?)),
        PlainRequest::ListSessions => reader.list_sessions()?,
        PlainRequest::ListGrants => Ask::ListGrants,
        PlainRequest::RevokeGrant => Ask::RevokeGrant { id: fields.text("grantId", reader.id())? },
        PlainRequest::ListProviders => Ask::ListProviders,
        PlainRequest::GetMetrics => Ask::Metrics { sandbox: fields.flag("sandbox")?.unwrap_or(false) },
        PlainRequest::CheckJournal => Ask::CheckJournal { full: fields.flag("full")?.unwrap_or(false) },
        PlainRequest::Speak => Ask::Speak(Box::new(reader.speak()?)),
        PlainRequest::Drain => Ask::Drain { grace_ms: fields.number("graceMs")? },
        PlainRequest::ListApprovals => {
            let session = reader.session(envelope_session)?;
            return Ok((session.clone(), Ask::ListApprovals { session }));
        }
    };
    // These payloads have no session id; the response echoes that of the envelope.
    Ok((envelope_session.map(SessionId::from), ask))
}

struct Reader<'r, 'a> {
    fields: &'r Fields<'a>,
    limits: &'r DecodeLimits,
}

impl Reader<'_, '_> {
    fn session(&self, envelope: Option<String>) -> Result<Option<SessionId>, Problem> {
        match (envelope, self.fields.key("sessionId", self.id())?) {
            (Some(outer), Some(inner)) if outer != inner => Err(Problem::TwoSessions),
            (outer, inner) => Ok(outer.or(inner).map(SessionId::from)),
        }
    }

    fn hello(&self) -> Result<Ask, Problem> {
        Ok(Ask::Hello {
            client_name: self.fields.hint("clientName", self.name())?,
            client_version: self.fields.hint("clientVersion", self.name())?,
            capabilities: self.fields.texts("capabilities", self.limits.capabilities, self.name())?,
        })
    }

    fn start_session(&self) -> Result<StartSession, Problem> {
        let fields = self.fields;
        let object = Bound::Bytes(self.limits.object);
        let word = |name, default: &str| -> Result<String, Problem> {
            Ok(fields.hint(name, self.name())?.unwrap_or_else(|| default.to_owned()))
        };
        Ok(StartSession {
            mode: self.mode(word("mode", "interactive")?)?,
            provider: fields.hint("provider", self.name())?,
            sandbox_provider: fields.hint("sandboxProvider", self.name())?,
            repo: fields.object("repo", object)?,
            cwd: self.directory()?,
            model: fields.hint("model", self.name())?,
            name: fields.hint("name", self.name())?,
            metadata: fields.object("metadata", object)?,
            environment: fields.environment(self.limits)?,
            idempotency_key: fields.key("idempotencyKey", self.id())?,
        })
    }

    fn mode(&self, word: String) -> Result<String, Problem> {
        match word.as_str() {
            "interactive" | "headless" => Ok(word),
            _ => Err(self.fields.fault("mode", Fault::Word { allowed: "\"interactive\" or \"headless\"" })),
        }
    }

    fn directory(&self) -> Result<String, Problem> {
        let path = Bound::Bytes(self.limits.path);
        if let Some(cwd) = self.fields.hint("cwd", path)? {
            return absolute(cwd).map_err(|fault| self.fields.fault("cwd", fault));
        }
        let repo = self.fields.inner("repo")?;
        match repo.hint("rootPath", path)? {
            Some(root) => absolute(root).map_err(|fault| repo.fault("rootPath", fault)),
            None => Err(Problem::NoDirectory),
        }
    }

    fn speak(&self) -> Result<Speak, Problem> {
        let fields = self.fields;
        let protocol = match fields.text("protocol", self.name())?.as_str() {
            "pi" => Protocol::Pi,
            _ => return Err(fields.fault("protocol", Fault::Word { allowed: "\"pi\"" })),
        };
        let cwd = fields.hint("cwd", Bound::Bytes(self.limits.path))?;
        let cwd = cwd.map(|cwd| absolute(cwd).map_err(|fault| fields.fault("cwd", fault))).transpose()?;
        Ok(Speak { protocol, cwd, environment: fields.environment(self.limits)? })
    }

    fn list_sessions(&self) -> Result<Ask, Problem> {
        Ok(Ask::ListSessions(ListSessions {
            limit: self.fields.page("limit", 20, self.limits.page)?,
            cursor: self.fields.hint("cursor", Bound::Chars(4 * self.limits.id))?,
            prefix: self.fields.hint("prefix", self.id())?,
            include_ended: self.fields.flag("includeEnded")?.unwrap_or(false),
        }))
    }

    fn session_ask(&self, request: SessionRequest) -> Result<SessionAsk, Problem> {
        Ok(match request {
            SessionRequest::AttachSession => SessionAsk::Attach(Box::new(self.attach(Summary::AfterGap)?)),
            SessionRequest::ResumeSession => SessionAsk::Attach(Box::new(self.attach(Summary::Always)?)),
            SessionRequest::SendUserMessage => SessionAsk::Prompt(Box::new(self.prompt()?)),
            SessionRequest::QueueMessage => SessionAsk::Queue(Box::new(self.prompt()?)),
            SessionRequest::ListQueue => SessionAsk::ListQueue,
            SessionRequest::RemoveQueued => {
                SessionAsk::Unqueue { message: MessageId::from(self.fields.text("messageId", self.id())?) }
            }
            SessionRequest::Steer => {
                let (message, text) = (self.message_id()?, self.message_text()?);
                SessionAsk::Steer { message, text, images: self.images()? }
            }
            SessionRequest::SubmitApproval => SessionAsk::Decide(Box::new(self.decide()?)),
            SessionRequest::CancelRun => SessionAsk::Cancel {
                run: self.run_id()?,
                reason: self
                    .fields
                    .hint("reason", self.name())?
                    .unwrap_or_else(|| "user_cancelled".to_owned()),
            },
            SessionRequest::GetSessionSnapshot => SessionAsk::Snapshot,
            SessionRequest::GetSessionMessages => SessionAsk::Messages {
                after: Seq::new(self.fields.number("afterSeq")?.unwrap_or(0)),
                limit: self.fields.page("limit", 100, self.limits.page)?,
            },
            SessionRequest::RenameSession => {
                SessionAsk::Rename { name: self.fields.text("name", self.name())? }
            }
            SessionRequest::EndSession => SessionAsk::End,
            SessionRequest::CompactSession => SessionAsk::Compact {
                instructions: self.fields.hint("instructions", Bound::Bytes(self.limits.comment))?,
                environment: self.fields.environment(self.limits)?,
            },
            SessionRequest::DeleteSession => {
                let dry_run = self.fields.flag("dryRun")?.unwrap_or(false);
                let with_pi_files = self.fields.flag("withPiFiles")?.unwrap_or(false);
                SessionAsk::Delete { dry_run, with_pi_files }
            }
            SessionRequest::DetachSession => SessionAsk::Detach,
        })
    }

    fn attach(&self, summary: Summary) -> Result<Attach, Problem> {
        Ok(Attach {
            seen: Seq::new(self.fields.number("lastSeenSeq")?.unwrap_or(0)),
            summary,
            token: self.fields.hint("attachToken", self.id())?.map(Token::new),
            read_only: self.fields.flag("readOnly")?.unwrap_or(false),
            environment: self.fields.environment(self.limits)?,
        })
    }

    fn prompt(&self) -> Result<Prompt, Problem> {
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
            rules: self.fields.texts("rules", self.limits.rules, Bound::Bytes(self.limits.comment))?,
            environment: self.fields.environment(self.limits)?,
        })
    }

    fn budget(&self) -> Result<Budget, Problem> {
        let budget = self.fields.inner("budget")?;
        Ok(Budget {
            cost: budget.millionths("maxCostUsd")?,
            turns: budget.positive("maxTurns")?,
            tokens: budget.positive("maxTokens")?,
        })
    }

    fn criterion(&self, at: usize, item: &Fields<'_>) -> Result<Criterion, Problem> {
        let check = item.text("check", Bound::Bytes(self.limits.check))?;
        if check.contains('\0') {
            return Err(item.fault("check", Fault::Nul));
        }
        Ok(Criterion {
            id: item.hint("id", self.id())?.unwrap_or_else(|| format!("check-{}", at + 1)),
            check,
            exit_code: item.exit_code("exitCode")?.unwrap_or(0),
            description: item.hint("description", Bound::Bytes(self.limits.comment))?,
        })
    }

    fn decide(&self) -> Result<Decide, Problem> {
        let fields = self.fields;
        let decision = match fields.text("decision", self.name())?.as_str() {
            "approve" => Decision::Approve,
            "deny" => Decision::Deny,
            _ => {
                let allowed = "\"approve\" or \"deny\"";
                return Err(fields.fault("decision", Fault::Word { allowed }));
            }
        };
        let lasting = match fields.hint("scope", self.name())?.as_deref() {
            None | Some("once") => Lasting::Once,
            Some("run") => Lasting::Run,
            Some("session") => Lasting::Session,
            Some("always") => Lasting::Always,
            Some(_) => {
                let allowed = "\"once\", \"run\", \"session\" or \"always\"";
                return Err(fields.fault("scope", Fault::Word { allowed }));
            }
        };
        Ok(Decide {
            gate: GateId::from(fields.text("approvalId", self.id())?),
            run: self.run_id()?,
            decision,
            choice: fields.hint("choice", self.name())?,
            comment: fields.hint("comment", Bound::Bytes(self.limits.comment))?,
            lasting,
            answer: fields.json("answer", Bound::Bytes(self.limits.answer))?,
            environment: fields.environment(self.limits)?,
        })
    }

    /// Reads the images of a message: each has a media type, and their total size is bounded.
    fn images(&self) -> Result<Vec<Image>, Problem> {
        let bound = Bound::Bytes(self.limits.image_bytes);
        let mut images = Vec::new();
        let mut bytes = 0;
        for item in self.fields.objects("images", self.limits.images)? {
            let mime = item.text("mimeType", self.id())?;
            if !IMAGE_TYPES.contains(&mime.as_str()) {
                let allowed = "\"image/png\", \"image/jpeg\", \"image/gif\" or \"image/webp\"";
                return Err(item.fault("mimeType", Fault::Word { allowed }));
            }
            let data = item.text("data", bound)?;
            if !is_base64(&data) {
                return Err(item.fault("data", Fault::NotBase64));
            }
            bytes += data.len();
            images.push(Image { mime, data });
        }
        if bytes > self.limits.image_bytes {
            return Err(self.fields.fault("images", Fault::Long { bound }));
        }
        Ok(images)
    }

    fn message_text(&self) -> Result<String, Problem> {
        self.fields.text("text", Bound::Bytes(self.limits.text))
    }

    fn message_id(&self) -> Result<Option<MessageId>, Problem> {
        Ok(self.fields.key("clientMessageId", self.id())?.map(MessageId::from))
    }

    fn run_id(&self) -> Result<Option<RunId>, Problem> {
        Ok(self.fields.key("runId", self.id())?.map(RunId::from))
    }

    const fn id(&self) -> Bound {
        Bound::Chars(self.limits.id)
    }

    const fn name(&self) -> Bound {
        Bound::Chars(self.limits.name)
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

fn absolute(path: String) -> Result<String, Fault> {
    if path.contains('\0') {
        return Err(Fault::Nul);
    }
    if !Path::new(&path).is_absolute() {
        return Err(Fault::Relative);
    }
    Ok(path)
}
