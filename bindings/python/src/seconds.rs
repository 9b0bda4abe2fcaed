//! Durations as Python has them: seconds as `int` or `float`, or a `timedelta`.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDeltaAccess as _, PyFloat, PyInt};

use crate::failure::Refusal;

const DAY_SECS: u64 = 86_400;

/// Reads the argument `name`.
///
/// # Errors
/// `TypeError` for what is no duration at all. A [`Refusal`] within for what
/// the core has no value for: negative, infinite, not a number.
pub(crate) fn read(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Result<Duration, Refusal>> {
    let duration = if let Ok(number) = value.cast::<PyFloat>() {
        of_float(number.value())
    } else if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        value.extract().ok().map(Duration::from_secs)
    } else if let Ok(delta) = value.cast::<PyDelta>() {
        of_delta(delta)
    } else {
        let found = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{name} must be seconds (int or float) or a datetime.timedelta, not {found}"
        )));
    };
    Ok(match duration {
        Some(duration) => Ok(duration),
        None => {
            let shown = value.str()?;
            Err(Refusal::Invalid(format!(
                "{name} is {shown}; it must be a number of seconds that is neither negative nor endless"
            )))
        }
    })
}

/// Rounds up to a nanosecond, so that the core can round up to a second.
fn of_float(secs: f64) -> Option<Duration> {
    let nearest = Duration::try_from_secs_f64(secs).ok()?;
    let too_short = nearest.as_secs_f64() < secs;
    Some(if too_short { nearest.saturating_add(Duration::from_nanos(1)) } else { nearest })
}

fn of_delta(delta: &Bound<'_, PyDelta>) -> Option<Duration> {
    // Days alone have the sign.
    let days = u64::try_from(delta.get_days()).ok()?;
    let secs = u64::try_from(delta.get_seconds()).ok()?;
    let micros = u64::try_from(delta.get_microseconds()).ok()?;
    Some(Duration::from_secs(days * DAY_SECS + secs) + Duration::from_micros(micros))
}
