//! The status of a server, for people.

use std::fmt::Write as _;

use serde_json::Value;

/// As text.
pub(crate) fn of(status: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    let mut page = String::new();
    let mut line = |name: &str, value: String| page += &format!("{name:<11}{value}\n");
    let obstacle = &status["obstacle"];
    let ready = if obstacle.is_null() { "yes".to_owned() } else { format!("no: {}", text(obstacle)) };
    line("ready", ready);
    line("mode", text(&status["mode"]));
    line("domain", text(&status["domain"]));
    line("held locks", text(&status["locks"]["held"]));
    line("waiters", text(&status["waiters"]["waiting"]));
    line("clients", text(&status["connections"]["open"]));
    let cluster = &status["cluster"];
    if cluster.is_null() {
        return page;
    }
    line("node", format!("{} (id {})", text(&cluster["slot"]), text(&cluster["node"])));
    line("role", text(&cluster["role"]));
    line("term", text(&cluster["term"]));
    line("applied", text(&cluster["applied"]));
    line("state", text(&cluster["state_hash"]));
    let leader = &cluster["leader"]["node"];
    let rows = [("voter", &cluster["voters"]), ("learner", &cluster["learners"])];
    let rows = rows.iter().flat_map(|(kind, members)| {
        members.as_array().into_iter().flatten().map(move |member| (*kind, member))
    });
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            page,
            "\n{:<10} {:<12} {:<8} {:<22} {:<22} {:>8} {:>12}",
            "NODE", "ID", "", "PEERS", "CLIENTS", "HEARD", "MATCHED"
        );
    }
    for (kind, member) in rows {
        let kind = if &member["node"] == leader { "leader" } else { kind };
        let ago = &member["heard_ms_ago"];
        let heard = if ago.is_null() { "-".to_owned() } else { format!("{} ms", text(ago)) };
        let _ = writeln!(
            page,
            "{:<10} {:<12} {:<8} {:<22} {:<22} {:>8} {:>12}",
            text(&member["slot"]),
            text(&member["node"]),
            kind,
            text(&member["peer"]),
            text(&member["client"]),
            heard,
            text(&member["matched"]),
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_single_server_has_no_members() {
        let page = of(&json!({ "mode": "single", "obstacle": null, "cluster": null }));
        assert!(page.contains("ready      yes") && !page.contains("NODE"), "{page}");
    }

    #[test]
    fn the_leader_is_marked() {
        let member = |node: u64| {
            json!({ "node": node, "slot": format!("n{node}"), "peer": "p:1", "client": "c:1",
            "heard_ms_ago": node, "matched": 7 })
        };
        let page = of(&json!({
            "obstacle": "no leader is known",
            "cluster": { "leader": member(2), "voters": [member(1), member(2)], "learners": [member(9)] },
        }));
        assert!(page.contains("no: no leader is known"), "{page}");
        let row = |name: &str| page.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("n1").contains("voter") && row("n2").contains("leader") && row("n9").contains("learner"));
    }

    #[test]
    fn nonsense_is_shown_as_such() {
        assert!(of(&json!([1, 2])).contains("mode       -"));
    }
}
