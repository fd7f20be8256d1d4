//! The pane with the approvals of all sessions, and the card of the selected one.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::text::{Line, Span};

use super::columns::{beside, cell, first_shown};
use super::model::DashboardExit;
use super::pane::{Answer, Area, Drawn, Handled, Pane};
use super::shared::Shared;
use crate::display::approval::{Decision, PendingApproval, is_already_decided};
use crate::display::sanitize::{escape_line, sanitize_line};
use crate::display::session_words::age;
use crate::tui::card::{ARMING_MILLIS, Card, CardAction, Entry};
use crate::tui::card_view::{self, CardContext, CardRows};
use crate::tui::keys::grants;
use crate::tui::model::Millis;
use crate::tui::painted::{self, QuestionExtent};
use crate::tui::text::wrap::wrap_line;

/// From how many columns on the card is beside the list, and how many the list has then.
const SIDE_BY_SIDE: u16 = 100;
const LIST_COLUMNS: u16 = 40;
/// How many approvals are listed above the card.
const LISTED_ABOVE: usize = 5;
/// What a card says while the session of its approval is not listed.
const UNPLACED: &str = "its directory is not known yet: it can only be denied";

/// The pane with the approvals.
#[derive(Debug, Default)]
pub(crate) struct ApprovalsPane {
    card: Option<Card>,
    /// Other cards, in which something was written.
    drafts: Vec<Card>,
    /// The first row of the complete text, while it is shown.
    whole: Option<usize>,
    /// Decisions without an answer: the request and the approval.
    sent: Vec<(u64, String)>,
}

impl ApprovalsPane {
    fn position(&self, shared: &Shared) -> usize {
        let is_shown =
            |pending: &PendingApproval| Some(pending.id()) == self.card.as_ref().map(|card| card.pending.id());
        shared.approvals.all().iter().position(is_shown).unwrap_or_default()
    }

    fn select(&mut self, by: isize, shared: &Shared) {
        let all = shared.approvals.all();
        let at = self.position(shared).saturating_add_signed(by).min(all.len().saturating_sub(1));
        if let Some(next) =
            all.get(at).filter(|next| self.card.as_ref().is_none_or(|card| card.pending.id() != next.id()))
        {
            let card = self.take_card(next);
            let mut left = self.card.replace(card).filter(|card| card.unsent_text().is_some());
            left.iter_mut().for_each(Card::mark_hidden);
            self.drafts.extend(left);
            self.whole = None;
        }
    }

    /// Returns the card of an approval: the one in which something was written, or a new one.
    fn take_card(&mut self, pending: &PendingApproval) -> Card {
        let draft = self.drafts.iter().position(|card| card.pending.id() == pending.id());
        draft.map_or_else(|| Card::new(pending.clone()), |at| self.drafts.remove(at))
    }

    fn decide(&mut self, decision: Decision, rule: Option<String>, shared: &mut Shared) {
        let Some(card) = self.card.as_mut() else { return };
        card.is_sent = true;
        let request =
            card.pending.decision_request(decision, None, shared.environment.as_ref()).with_some("rule", rule);
        let number = shared.change(request);
        self.sent.push((number, card.pending.id().to_owned()));
    }

    fn act(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled {
        let hides_rows = self.draw_card(shared.area(), shared).is_some_and(|drawn| drawn.hides_rows);
        let Some(card) = self.card.as_mut() else { return Handled::No };
        let is_placed = directory(card, shared).is_some();
        if !card.is_armed(shared.now) {
            return Handled::No;
        }
        match card.key(key) {
            CardAction::None => {}
            CardAction::Unused => return Handled::No,
            CardAction::ShowWhole => {
                self.whole = Some(0);
                self.scroll(0, shared);
            }
            CardAction::Decide { decision, .. } if grants(&decision) && !is_placed => {
                card.problem = Some(UNPLACED.to_owned());
            }
            CardAction::Decide { decision, .. } if grants(&decision) && hides_rows && !card.is_viewed => {
                card.problem = Some("a part is not shown: v shows everything".to_owned());
            }
            CardAction::Decide { decision, rule } => self.decide(decision, rule, shared),
        }
        Handled::Yes
    }

    /// Says on the card whether the directory is known; as soon as it is, it has to be read before keys decide.
    fn check_place(&mut self, shared: &Shared) {
        let Some(card) = self.card.as_mut() else { return };
        let is_placed = directory(card, shared).is_some();
        let says_unplaced = card.problem.as_deref() == Some(UNPLACED);
        if is_placed && says_unplaced {
            card.problem = None;
            if !matches!(card.entry, Entry::Reason(_) | Entry::Answer(_)) {
                card.mark_hidden();
            }
        } else if !is_placed && card.problem.is_none() && card.pending.form.is_none() {
            card.problem = Some(UNPLACED.to_owned());
        }
    }

    /// Scrolls the complete text; what has been on the screen to its end counts as shown.
    fn scroll(&mut self, by: isize, shared: &Shared) {
        let area = shared.area();
        let count = self.whole_rows(area, shared).len();
        let (Some(first), Some(card)) = (self.whole.as_mut(), self.card.as_mut()) else { return };
        let last = count.saturating_sub(area.height.saturating_sub(1));
        *first = first.saturating_add_signed(by).min(last);
        card.is_viewed |= *first == last;
    }

    fn whole_rows(&self, area: Area, shared: &Shared) -> Vec<Line<'static>> {
        let Some(card) = &self.card else { return Vec::new() };
        let question = &card.pending.question;
        let title = Line::from(Span::styled(format!("? {}", escape_line(&question.title)), shared.theme.attention));
        let mut lines = vec![title];
        lines.extend(painted::question(question, &shared.theme, QuestionExtent::Whole));
        lines.iter().flat_map(|line| wrap_line(line, area.width, card_view::continuation(line))).collect()
    }

    fn draw_whole(&self, first: usize, area: Area, shared: &Shared) -> Drawn {
        let rows = self.whole_rows(area, shared);
        let height = area.height.saturating_sub(1);
        let left = rows.len().saturating_sub(first + height);
        let mut rows: Vec<_> = rows.into_iter().skip(first).take(height).collect();
        rows.resize(height, Line::default());
        let text = match left {
            0 => "the end; Esc or v goes back to the card".to_owned(),
            left => format!("{left} more rows: Down, PageDown, End; Esc or v goes back to the card"),
        };
        rows.push(Line::from(Span::styled(text, shared.theme.faint)));
        Drawn { rows, cursor: None }
    }

    /// Returns the columns of the card, and the rows above it.
    fn layout(area: Area, shared: &Shared) -> (u16, usize) {
        if area.width >= SIDE_BY_SIDE {
            return (area.width - LIST_COLUMNS - 3, 0);
        }
        (area.width, shared.approvals.all().len().min(LISTED_ABOVE) + 1)
    }

    fn draw_card(&self, area: Area, shared: &Shared) -> Option<CardRows> {
        let card = self.card.as_ref()?;
        let (width, above) = Self::layout(area, shared);
        let context = CardContext {
            theme: &shared.theme,
            width,
            now: shared.now,
            cwd: directory(card, shared).unwrap_or_default(),
            counted: shared.approvals.find(card.pending.id()).unwrap_or(&card.pending),
            others: shared.approvals.all().len().saturating_sub(1),
            is_focused: true,
            read_only: false,
        };
        Some(card_view::draw(&context, card, area.height.saturating_sub(above)))
    }

    fn list(&self, area: Area, shared: &Shared) -> Vec<Line<'static>> {
        let theme = &shared.theme;
        let all = shared.approvals.all();
        let selected = self.position(shared);
        let first = first_shown(selected, all.len(), area.height);
        let row = |(at, pending): (usize, &PendingApproval)| {
            let (mark, style) = if at == selected { ("› ", theme.strong) } else { ("  ", theme.context) };
            let entry = shared.sessions.find(&pending.session);
            let handle = entry.map_or_else(|| sanitize_line(&pending.session), |entry| entry.handle.clone());
            let left = age(pending.question.expires.0.saturating_sub(shared.now));
            let room = usize::from(area.width).saturating_sub(15);
            Line::from(vec![
                Span::styled(format!("{mark}{}", cell(&handle, 7)), style),
                Span::styled(cell(&left, 5), theme.faint),
                Span::styled(cell(&escape_line(&pending.question.summary), room), style),
            ])
        };
        all.iter().enumerate().skip(first).take(area.height).map(row).collect()
    }
}

/// Returns the directory of the session that wants an approval, if the session is listed.
fn directory<'a>(card: &Card, shared: &'a Shared) -> Option<&'a str> {
    let entry = shared.sessions.find(&card.pending.session)?;
    Some(entry.item.cwd.as_str()).filter(|directory| !directory.is_empty())
}

impl Pane for ApprovalsPane {
    fn title(&self) -> &'static str {
        "Approvals"
    }

    fn count(&self, shared: &Shared) -> Option<usize> {
        Some(shared.approvals.all().len())
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("y", "approve once"),
            ("r", "approve for this run"),
            ("s", "approve for this session"),
            ("w", "approve always in this repository, by a rule that can be edited"),
            ("n", "deny, with a reason for the model"),
            ("v", "show the whole diff or command"),
            ("o", "open the session"),
            ("Up, Down", "select an approval; PageUp, PageDown do so in a field too"),
        ]
    }

    fn key(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled {
        if self.whole.is_some() {
            let page = isize::try_from(shared.area().height.saturating_sub(2)).unwrap_or(10);
            match key.code {
                KeyCode::Up => self.scroll(-1, shared),
                KeyCode::Down | KeyCode::Enter => self.scroll(1, shared),
                KeyCode::PageUp => self.scroll(-page, shared),
                KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page, shared),
                KeyCode::Home => self.scroll(isize::MIN, shared),
                KeyCode::End => self.scroll(isize::MAX, shared),
                KeyCode::Esc | KeyCode::Char('v') => self.whole = None,
                _ => return Handled::No,
            }
            return Handled::Yes;
        }
        let is_entering = self.card.as_ref().is_some_and(Card::is_entering);
        // A field takes every key except those that leave it.
        let leaves = matches!(key.code, KeyCode::PageUp | KeyCode::PageDown);
        if !(is_entering && leaves) && self.act(key, shared) == Handled::Yes {
            return Handled::Yes;
        }
        match key.code {
            _ if is_entering && !leaves && key.code != KeyCode::Esc => {}
            KeyCode::Up | KeyCode::Char('k') => self.select(-1, shared),
            KeyCode::Down | KeyCode::Char('j') => self.select(1, shared),
            KeyCode::Char('[') | KeyCode::PageUp => self.select(-1, shared),
            KeyCode::Char(']') | KeyCode::PageDown => self.select(1, shared),
            KeyCode::Char('o') => {
                if let Some(card) = &self.card {
                    shared.leave(DashboardExit::Open(card.pending.session.clone()));
                }
            }
            _ => return Handled::No,
        }
        Handled::Yes
    }

    fn discard_text(&mut self, _shared: &mut Shared) -> bool {
        self.card.as_mut().is_some_and(Card::discard_text)
    }

    fn unsent_texts(&self) -> Vec<String> {
        self.card.iter().chain(&self.drafts).filter_map(Card::unsent_text).map(str::to_owned).collect()
    }

    fn paste(&mut self, text: &str, _shared: &mut Shared) {
        if let Some(card) = &mut self.card {
            card.paste(text);
        }
    }

    fn answer(&mut self, answer: &Answer, shared: &mut Shared) {
        let Some(at) = self.sent.iter().position(|(number, _)| *number == answer.number) else { return };
        let (_, id) = self.sent.remove(at);
        shared.refresh_soon();
        match &answer.result {
            Ok(_) => {
                // An approval that needs further votes comes back with the next list.
                shared.approvals.remove(&id);
                shared.sessions.mark_stale();
                shared.show_hint("decided");
            }
            Err(error) if is_already_decided(error.code.as_deref()) => {
                shared.approvals.remove(&id);
                shared.show_hint("the approval is already decided");
            }
            Err(error) => match self.card.as_mut().filter(|card| card.pending.id() == id) {
                Some(card) => {
                    card.is_sent = false;
                    card.problem = Some(sanitize_line(&error.message));
                }
                None => shared.show_error(error),
            },
        }
    }

    fn refresh(&mut self, shared: &mut Shared) {
        let is_pending = |card: &Card| shared.approvals.find(card.pending.id()).is_some();
        let (drafts, mut decided): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.drafts).into_iter().partition(is_pending);
        self.drafts = drafts;
        decided.extend(self.card.take_if(|card| !is_pending(card)));
        for text in decided.iter().filter_map(Card::unsent_text) {
            shared.show_hint(&format!("the approval was decided elsewhere; not sent: {text}"));
        }
        if self.card.is_none() {
            self.whole = None;
            self.card = shared.approvals.all().first().map(|pending| self.take_card(pending));
        }
        self.check_place(shared);
    }

    fn next_tick(&self, shared: &Shared) -> Option<Millis> {
        let card = self.card.as_ref()?;
        let is_arming = !card.is_armed(shared.now) && !card.is_sent;
        Some(shared.now + if is_arming { ARMING_MILLIS / 6 } else { 1000 })
    }

    fn to_be_read(&self) -> Option<String> {
        self.card.as_ref().map(|card| card.pending.id().to_owned())
    }

    fn mark_drawn(&mut self, shown: &str, now: Millis) {
        if let Some(card) = self.card.as_mut().filter(|card| card.pending.id() == shown) {
            card.mark_drawn(now);
        }
    }

    fn draw(&self, area: Area, shared: &Shared) -> Drawn {
        if let Some(first) = self.whole {
            return self.draw_whole(first, area, shared);
        }
        let Some(card) = self.draw_card(area, shared) else {
            return Drawn {
                rows: vec![Line::from(Span::styled("no approval is pending", shared.theme.faint))],
                cursor: None,
            };
        };
        let (_, above) = Self::layout(area, shared);
        if above == 0 {
            let left = self.list(Area { width: LIST_COLUMNS, ..area }, shared);
            let rows = beside(&left, LIST_COLUMNS, &card.rows, &shared.theme);
            let cursor = card.cursor.map(|(row, column)| (row, column + LIST_COLUMNS + 3));
            return Drawn { rows, cursor };
        }
        let mut rows = self.list(Area { height: above - 1, ..area }, shared);
        rows.resize(above, Line::default());
        rows.extend(card.rows);
        Drawn { rows, cursor: card.cursor.map(|(row, column)| (row + above, column)) }
    }
}
