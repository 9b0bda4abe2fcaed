//! Many cases out of one scenario: parameters, and steps that repeat.
//!
//! `"for_each": {"k": {"from": 0, "to": 140}, "how": ["fin", "rst"]}` makes a
//! case of each combination and puts its values where `{k}` and `{how}` stand.
//! A value that is an object also gives its fields, as `{case.field}`.
//! A list element `{"repeat": {"i": …}, "steps": […]}` becomes its steps, once
//! for each value.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};

/// A label longer than this tells nobody anything.
const LONGEST_LABEL: usize = 24;

/// The cases of a scenario: a label, empty where there is only one, and the
/// scenario with everything put in place.
pub(crate) fn cases(mut scenario: Value) -> Result<Vec<(String, Value)>> {
    let mut cases = vec![(String::new(), Value::Null)];
    let parameters = scenario.as_object_mut().and_then(|object| object.remove("for_each"));
    cases[0].1 = scenario;
    for (name, range) in as_object(parameters.as_ref())? {
        let values = values(range).with_context(|| format!("for_each {name}"))?;
        let mut next = Vec::with_capacity(cases.len() * values.len());
        for (label, case) in &cases {
            for (index, value) in values.iter().enumerate() {
                let mut case = case.clone();
                substitute(&mut case, name, value);
                let comma = if label.is_empty() { "" } else { "," };
                next.push((format!("{label}{comma}{name}={}", text_of(value, index)), case));
            }
        }
        cases = next;
    }
    for (_, case) in &mut cases {
        unroll(case)?;
    }
    Ok(cases)
}

fn as_object(value: Option<&Value>) -> Result<&Map<String, Value>> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    match value {
        None => Ok(&NONE),
        Some(Value::Object(object)) => Ok(object),
        Some(other) => bail!("{other} should be an object of parameters"),
    }
}

/// A list as it is, or the numbers of `{"from": 1, "to": 9}`, both included.
fn values(range: &Value) -> Result<Vec<Value>> {
    if let Value::Array(list) = range {
        ensure!(!list.is_empty(), "a parameter without a value");
        return Ok(list.clone());
    }
    let end = |name| range.get(name).and_then(Value::as_u64);
    match (end("from"), end("to"), as_object(Some(range))?.len()) {
        (Some(from), Some(to), 2) if from <= to => Ok((from..=to).map(Value::from).collect()),
        _ => bail!("{range} is neither a list nor {{\"from\": 1, \"to\": 9}}"),
    }
}

fn text_of(value: &Value, index: usize) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let plain = text.len() <= LONGEST_LABEL && text.bytes().all(|byte| byte.is_ascii_graphic());
    if plain && !text.is_empty() { text } else { format!("#{index}") }
}

/// Puts `value` in the place of `{name}`: as it is where the text is nothing
/// else, within the text otherwise. The fields of an object are `{name.field}`.
fn substitute(target: &mut Value, name: &str, value: &Value) {
    for (field, inner) in value.as_object().into_iter().flatten() {
        substitute(target, &format!("{name}.{field}"), inner);
    }
    let mark = format!("{{{name}}}");
    match target {
        Value::String(text) if *text == mark => *target = value.clone(),
        Value::String(text) if text.contains(&mark) => {
            let inner = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            *text = text.replace(&mark, &inner);
        }
        Value::Array(list) => list.iter_mut().for_each(|item| substitute(item, name, value)),
        Value::Object(object) => object.values_mut().for_each(|item| substitute(item, name, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unroll(value: &mut Value) -> Result<()> {
    match value {
        Value::Array(list) => {
            let mut flat = Vec::with_capacity(list.len());
            for item in std::mem::take(list) {
                match item.get("repeat") {
                    Some(repeat) => flat.extend(repeated(repeat, &item)?),
                    None => flat.push(item),
                }
            }
            *list = flat;
            list.iter_mut().try_for_each(unroll)
        }
        Value::Object(object) => object.values_mut().try_for_each(unroll),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn repeated(repeat: &Value, item: &Value) -> Result<Vec<Value>> {
    let steps = item.get("steps").and_then(Value::as_array).context("a repeat without steps")?;
    ensure!(as_object(Some(item))?.len() == 2, "a repeat has `repeat` and `steps` and nothing else");
    let parameters = as_object(Some(repeat))?;
    let (Some((name, range)), 1) = (parameters.iter().next(), parameters.len()) else {
        bail!("a repeat has one parameter");
    };
    let mut all = Vec::new();
    for value in values(range)? {
        for step in steps {
            let mut step = step.clone();
            substitute(&mut step, name, &value);
            all.push(step);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_multiply_and_keep_their_type() {
        let scenario = json!({"for_each": {"how": ["fin", "rst"], "k": {"from": 1, "to": 2}}, "x": ["{k}", "{how}-{k}"]});
        let cases = cases(scenario).unwrap();
        let labels: Vec<_> = cases.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["how=fin,k=1", "how=fin,k=2", "how=rst,k=1", "how=rst,k=2"]);
        assert_eq!(cases[3].1, json!({"x": [2, "rst-2"]}));
    }

    #[test]
    fn fields_of_a_parameter_go_together() {
        let scenario =
            json!({"for_each": {"case": [{"in": "1.5", "out": 2}]}, "x": ["{case.in}", "{case.out}"]});
        assert_eq!(cases(scenario).unwrap()[0].1, json!({"x": ["1.5", 2]}));
    }

    #[test]
    fn steps_repeat_in_place() {
        let scenario =
            json!({"x": [0, {"repeat": {"i": {"from": 1, "to": 2}}, "steps": ["a{i}", "{i}"]}, 9]});
        assert_eq!(cases(scenario).unwrap(), [(String::new(), json!({"x": [0, "a1", 1, "a2", 2, 9]}))]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            json!({"for_each": {"k": []}}),
            json!({"for_each": {"k": {"from": 2, "to": 1}}}),
            json!({"x": [{"repeat": {"i": [1]}}]}),
            json!({"x": [{"repeat": {"i": [1], "j": [1]}, "steps": []}]}),
            json!({"x": [{"repeat": {"i": [1]}, "steps": [], "more": 1}]}),
        ] {
            assert!(cases(bad.clone()).is_err(), "{bad}");
        }
    }
}
