//! The metrics page. Everything is counted where it happens, and only written
//! down in the format of Prometheus here; no key is ever a label.

use metrics::{counter, describe_counter, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use ticketing_cluster::Status;
use ticketing_protocol::Reason;

use crate::driver::Report;
use crate::hub::Hub;

/// The page, as of now.
pub(crate) fn render(hub: &Hub, report: &Report, cluster: Option<&Status>) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    with_local_recorder(&recorder, || {
        connections(hub);
        locks(hub, report);
        outcomes(hub, report);
        if let Some(status) = cluster {
            replication(report, status);
        }
    });
    handle.render()
}

fn now(name: &'static str, help: &'static str, value: u64) {
    describe_gauge!(name, help);
    // Exact up to 2^53, far above every limit.
    gauge!(name).set(value as f64);
}

fn total(name: &'static str, help: &'static str, value: u64) {
    describe_counter!(name, help);
    counter!(name).absolute(value);
}

fn connections(hub: &Hub) {
    let (counters, limits) = (&hub.counters, &hub.limits);
    now("ticketing_connections", "Open connections.", counters.connections.get());
    now("ticketing_connections_max", "Limit of open connections.", limits.connections.into());
    now(
        "ticketing_unauthenticated_connections",
        "Open connections that have not authenticated yet.",
        counters.unauthenticated.get(),
    );
    now(
        "ticketing_unauthenticated_connections_max",
        "Limit of connections that have not authenticated yet.",
        limits.unauthenticated.into(),
    );
    total(
        "ticketing_connections_accepted_total",
        "Connections that came in, those turned away too.",
        counters.accepted.get(),
    );
    total(
        "ticketing_sessions_total",
        "Connections that authenticated and were served.",
        counters.authenticated.get(),
    );
    total(
        "ticketing_accept_failures_total",
        "Times that no connection could be accepted, for want of file descriptors as a rule.",
        counters.accept_failures.get(),
    );
    total("ticketing_tls_failures_total", "TLS handshakes that failed.", counters.tls_failures.get());
    let name = "ticketing_errors_total";
    describe_counter!(name, "Connections that the server ended with an error, by reason.");
    for reason in Reason::ALL {
        counter!(name, "reason" => reason.as_str()).absolute(counters.errors(reason).get());
    }
    now(
        "ticketing_unread_output_bytes_max",
        "Limit of the answers that a connection may leave unread.",
        limits.unread_output as u64,
    );
    total(
        "ticketing_output_pauses_total",
        "Times that a connection was not read on until it had read its answers.",
        counters.output_pauses.get(),
    );
    now(
        "ticketing_in_flight_max",
        "Limit of the requests of one connection without an answer.",
        limits.engine.in_flight_per_connection.into(),
    );
    total(
        "ticketing_in_flight_pauses_total",
        "Times that a connection was not read on until its requests in flight were fewer.",
        counters.in_flight_pauses.get(),
    );
}

fn locks(hub: &Hub, report: &Report) {
    let (engine, limits) = (&report.engine, &hub.limits.engine);
    now("ticketing_held_locks", "Locks that are held.", engine.held);
    now("ticketing_held_locks_max", "Limit of locks held at one time.", limits.held.into());
    now("ticketing_waiters", "Acquires that wait.", engine.waiters);
    now("ticketing_waiters_max", "Limit of acquires that wait.", limits.waiters.into());
    now(
        "ticketing_waiters_per_key_max",
        "Limit of acquires that wait for one key.",
        limits.waiters_per_key.into(),
    );
    now("ticketing_tombstones", "Verified refusals that are remembered.", engine.tombstones);
    now(
        "ticketing_tombstones_max",
        "Limit of verified refusals that are remembered.",
        limits.tombstones.into(),
    );
}

fn replication(report: &Report, status: &Status) {
    now("ticketing_leading", "1 while this node decides, else 0.", report.in_office.into());
    now("ticketing_term", "Election term.", status.term);
    now("ticketing_voters", "Nodes that have a vote.", status.voters.len() as u64);
    now("ticketing_learners", "Nodes that are about to have one.", status.learners.len() as u64);
    now("ticketing_applied_index", "Last entry of the log that is applied here.", status.applied);
    now("ticketing_log_bytes", "Memory that the log takes.", status.log_bytes);
    now("ticketing_batches_in_flight", "Batches that wait for a majority.", report.batches_in_flight);
    now(
        "ticketing_out_of_touch_milliseconds",
        "Time since a majority was seen, by this node or through its leader.",
        status.out_of_touch_ms,
    );
    let name = "ticketing_role";
    describe_gauge!(name, "1 for what this node is, 0 for everything else.");
    for role in ticketing_cluster::ROLES {
        gauge!(name, "role" => role).set(if status.role == role { 1.0 } else { 0.0 });
    }
}

fn outcomes(hub: &Hub, report: &Report) {
    let engine = &report.engine;
    total("ticketing_requests_total", "Requests that arrived.", hub.counters.requests.get());
    total("ticketing_grants_total", "Acquires that were granted.", engine.granted);
    total("ticketing_timeouts_total", "Acquires whose wait ran out.", engine.timed_out);
    total("ticketing_busy_total", "Acquires that were refused: a limit, a cancel, or draining.", engine.busy);
    total("ticketing_releases_total", "Locks that were released.", engine.released);
    total("ticketing_not_held_total", "Releases of a token that does not hold its key.", engine.not_held);
    total("ticketing_expirations_total", "Locks whose lease ran out.", engine.expired);
    total(
        "ticketing_lost_grants_total",
        "Grants given back because their connection ended before a byte of them left.",
        engine.given_back,
    );
    total("ticketing_turns_total", "Batches of requests and timers that were worked through.", report.turns);
}
