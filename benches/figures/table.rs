//! The table of results, as text and as JSON.

use std::time::Instant;

use serde_json::json;

/// One result and its baseline.
struct Row {
    group: &'static str,
    what: String,
    unit: &'static str,
    figure: f64,
    /// The name and the value of the baseline.
    raw: Option<(&'static str, f64)>,
}

/// All results.
pub(crate) struct Table {
    filter: Option<String>,
    group: &'static str,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) const fn new(filter: Option<String>) -> Self {
        Self { filter, group: "", rows: Vec::new() }
    }

    /// Measures a group, unless the filter excludes it.
    pub(crate) fn group(&mut self, group: &'static str, measure: fn(&mut Self)) {
        if self.filter.as_ref().is_some_and(|wanted| !group.contains(wanted.as_str())) {
            return;
        }
        self.group = group;
        let begun = Instant::now();
        measure(self);
        eprintln!("{group}: measured in {:.1} s", begun.elapsed().as_secs_f64());
    }

    /// Adds a result with its baseline.
    pub(crate) fn compare(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        figure: f64,
        raw: (&'static str, f64),
    ) {
        self.rows.push(Row { group: self.group, what: what.into(), unit, figure, raw: Some(raw) });
    }

    /// Adds a result without a baseline.
    pub(crate) fn single(&mut self, what: impl Into<String>, unit: &'static str, figure: f64) {
        self.rows.push(Row { group: self.group, what: what.into(), unit, figure, raw: None });
    }

    pub(crate) fn print(&self) {
        println!("| figure | measured | raw | ratio | raw is |");
        println!("|---|---:|---:|---:|---|");
        for Row { group, what, unit, figure, raw } in &self.rows {
            let (limit, ratio, name) = match raw {
                Some((name, limit)) => (number(*limit), format!("{:.2}", figure / limit), *name),
                None => (String::new(), String::new(), ""),
            };
            println!("| {group}: {what} | {} {unit} | {limit} | {ratio} | {name} |", number(*figure));
        }
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|Row { group, what, unit, figure, raw }| {
                let raw = raw.map(|(name, limit)| json!({"what": name, "value": limit, "ratio": figure / limit}));
                json!({"group": group, "what": what, "unit": unit, "value": figure, "raw": raw})
            })
            .collect();
        serde_json::to_string_pretty(&json!({ "figures": rows })).expect("JSON") + "\n"
    }
}

/// Formats a number with its significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let mut spelled = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 {
                    spelled.push(',');
                }
                spelled.push(digit);
            }
            spelled
        }
    }
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns a percentile.
pub(crate) fn percentile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part) as usize]
}
