//! The results of several languages side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// One line of a runner's results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultLine {
    case: String,
    /// `ok`, `failed` or `n/a`, as the verdict said.
    end: String,
    #[serde(default, rename = "why")]
    _why: Option<String>,
}

/// Cases of one scenario in one language.
#[derive(Clone, Debug, Default)]
struct Cell {
    ok: usize,
    failed: usize,
    not_applicable: usize,
}

impl Cell {
    fn text(&self) -> String {
        let all = self.ok + self.failed + self.not_applicable;
        match (self.failed, self.ok, all) {
            (_, _, 0) => "-".into(),
            (0, 0, _) => "n/a".into(),
            (0, 1, 1) => "ok".into(),
            (0, ok, all) => format!("ok {ok}/{all}"),
            (1, _, 1) => "FAILED".into(),
            (failed, _, all) => format!("FAILED {failed}/{all}"),
        }
    }

    fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.not_applicable += other.not_applicable;
    }
}

/// Scenarios down, languages across; the cases of one scenario are counted together.
pub(crate) fn table(files: &[PathBuf]) -> Result<String> {
    let mut languages = Vec::new();
    let mut rows: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
    for (column, path) in files.iter().enumerate() {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        languages.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        for line in text.lines() {
            let line: ResultLine =
                serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))?;
            let scenario = line.case.split('[').next().unwrap_or_default().to_owned();
            let row = rows.entry(scenario).or_insert_with(|| vec![Cell::default(); files.len()]);
            match line.end.as_str() {
                "ok" => row[column].ok += 1,
                "n/a" => row[column].not_applicable += 1,
                _ => row[column].failed += 1,
            }
        }
    }
    let mut total = vec![Cell::default(); files.len()];
    for row in rows.values() {
        total.iter_mut().zip(row).for_each(|(total, cell)| total.add(cell));
    }
    rows.insert("~ all".into(), total);

    let width = rows.keys().map(String::len).max().unwrap_or_default().max("scenario".len());
    let mut out = format!("{:width$}", "scenario");
    for language in &languages {
        write!(out, "  {language:14}")?;
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    for (scenario, row) in &rows {
        write!(out, "{:width$}", scenario.trim_start_matches("~ "))?;
        for cell in row {
            write!(out, "  {:14}", cell.text())?;
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_a_scenario_share_a_cell() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("rust.jsonl"), folder.path().join("python.jsonl"));
        let lines = |ends: &[(&str, &str)]| -> String {
            ends.iter().map(|(case, end)| format!("{{\"case\":\"{case}\",\"end\":\"{end}\"}}\n")).collect()
        };
        std::fs::write(&one, lines(&[("cut[k=1]", "ok"), ("cut[k=2]", "failed"), ("plain", "ok")])).unwrap();
        std::fs::write(&two, lines(&[("cut[k=1]", "ok"), ("cut[k=2]", "ok"), ("nan", "n/a")])).unwrap();
        let table = table(&[one, two]).unwrap();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["scenario", "rust", "python"]);
        assert_eq!(rows[1], ["cut", "FAILED", "1/2", "ok", "2/2"]);
        assert_eq!(rows[2], ["nan", "-", "n/a"]);
        assert_eq!(rows[3], ["plain", "ok", "-"]);
        assert_eq!(rows[4], ["all", "FAILED", "1/3", "ok", "2/3"]);
    }
}
