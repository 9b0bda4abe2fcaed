//! Durations as people write them.

use std::time::Duration;

/// Reads `30`, `1.5`, `250ms`, `30s`, `2m` or `1h`; a number alone means seconds.
///
/// # Errors
/// A sentence that says what is accepted.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    // No sign and no exponent, so no negative number, NaN or infinity either.
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_secs = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(refusal()),
    };
    let number: f64 = number.parse().map_err(|_| refusal())?;
    Duration::try_from_secs_f64(number * unit_secs).map_err(|_| refusal())
}

fn refusal() -> String {
    "a duration is a number of seconds, or has a unit: 30, 1.5, 250ms, 30s, 2m, 1h".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted() {
        for (text, millis) in [
            ("0", 0),
            ("30", 30_000),
            ("1.5", 1_500),
            (".5", 500),
            ("250ms", 250),
            ("29000ms", 29_000),
            ("30s", 30_000),
            ("2m", 120_000),
            ("0.5m", 30_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            ".",
            "s",
            "-1",
            "+1",
            "1e3",
            "nan",
            "inf",
            "1d",
            "1 s",
            "1s ",
            "1.2.3",
            "99999999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
