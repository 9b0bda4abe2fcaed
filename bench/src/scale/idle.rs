//! Ten thousand connections that do nothing.

use anyhow::Result;
use ticketing_protocol::{ClientFrame, Key, ServerFrame};

use super::bytes_each;
use crate::raw::Connection;
use crate::report::{Finding, Target};
use crate::stage::Stage;

pub(crate) fn measure(stage: &Stage) -> Result<Vec<Finding>> {
    stage.step("idle connections: opening");
    let server = stage.server()?;
    let before = server.usage().rss;
    let mut connections = Vec::with_capacity(stage.plan.connections as usize);
    let started = std::time::Instant::now();
    for _ in 0..stage.plan.connections {
        connections.push(Connection::open(server.addr())?);
    }
    let opened = f64::from(stage.plan.connections) / started.elapsed().as_secs_f64();
    let bytes = bytes_each(before, server.usage().rss, stage.plan.connections);
    // They are idle, not dead.
    for connection in connections.iter_mut().step_by(100) {
        let key = Key::new("still-there")?;
        connection.push(ClientFrame::Release { token: 1, key });
        connection.exchange(1, |answer| matches!(answer, ServerFrame::NotHeld { .. }))?;
    }
    Ok(vec![
        Finding::new("memory of an idle connection", bytes / 1024.0, "KiB", Target::AtMost(20.0)),
        Finding::new("connections opened, one after the other", opened, "/s", Target::None),
    ])
}
