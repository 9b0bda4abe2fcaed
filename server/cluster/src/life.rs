//! The life of a process in a cluster: blank, then a node, until its end.
//!
//! Without a data directory the state of a node is gone when its process ends, and
//! with it its vote: it never comes back as the voter that it was. A process begins
//! blank. It becomes a node by one of two ways, each once: it is there when the
//! cluster is formed, or the leader gives it a new node id and its old place. With a
//! data directory there is a third: it is the node that it finds there. A start
//! alone never initialises anything.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use ticketing_peer::{CallError, Party, Peer};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::calls::{Form, Hello, Join, Joined, decode, encode, kind};
use crate::durable::{Identity, Opened, Write};
use crate::log::Log;
use crate::machine::Machine;
use crate::network::Network;
use crate::node::{Inner, NO_PLACE, Running};
use crate::peers::Peers;
use crate::standing::{Stage, Standing};
use crate::types::{Member, NodeId, Raft};
use crate::{housekeeping, office, over, seats};

/// Between two looks at the peers.
const LOOK_INTERVAL: Duration = Duration::from_millis(150);

/// How long a peer may take to say who it is.
pub(crate) const HELLO_PATIENCE: Duration = Duration::from_secs(1);

/// A formation that has not become a cluster by then never will.
const FORMING_PATIENCE: Duration = Duration::from_secs(30);

type Forms = mpsc::Receiver<(Form, oneshot::Sender<Result<(), String>>)>;

/// Lives until the process must end; [`Standing::stage`] then says why.
pub(crate) async fn live(inner: Arc<Inner>, mut forms: Forms, mut found: Option<Opened>) {
    let mut asked = None;
    loop {
        let begun = match (found.take(), asked.take()) {
            (Some(found), _) => run(&inner, found.identity.clone(), Some(found)).await.map(Some),
            (None, Some((form, done))) => become_founder(&inner, form, done).await,
            (None, None) => be_blank(&inner, &mut forms).await,
        };
        let running = match begun {
            Ok(Some(running)) => running,
            Ok(None) => continue,
            Err(problem) => {
                error!(problem, "this process cannot be a node");
                return inner.stand(|standing| standing.stage = Stage::Broken);
            }
        };
        match be_a_node(&inner, running, &mut forms).await {
            Some(form) => asked = Some(form),
            None => return,
        }
    }
}

/// Waits for a formation, or for a cluster to come back into.
async fn be_blank(inner: &Arc<Inner>, forms: &mut Forms) -> Result<Option<Arc<Running>>, String> {
    info!(
        slot = inner.slot().map_or("?", |slot| &slot.name),
        "waiting for `ticketing-server init`, or for the cluster that this place belongs to"
    );
    let mut told = None;
    loop {
        tokio::select! {
            biased;
            Some((form, done)) = forms.recv() => return become_founder(inner, form, done).await,
            found = look_around(inner) => {
                match found {
                    Ok((cluster, node)) => {
                        return begin(inner, inner.identity(cluster, node, None)?).await.map(Some);
                    }
                    Err(why) if told.as_ref() != Some(&why) => {
                        info!(why, "not in a cluster");
                        told = Some(why);
                    }
                    Err(_) => {}
                }
                sleep(LOOK_INTERVAL).await;
            }
        }
    }
}

/// Asks everybody who they are, and the leader of a cluster for a place.
async fn look_around(inner: &Arc<Inner>) -> Result<(u128, NodeId), String> {
    let hellos = hellos(inner, &inner.strangers).await;
    let begun = hellos.iter().filter(|(_, hello)| hello.begun).collect::<Vec<_>>();
    let Some((_, first)) = begun.first() else {
        return Err("no cluster has been initialised (ticketing-server init does it, once)".to_owned());
    };
    if begun.iter().any(|(_, hello)| hello.cluster != first.cluster) {
        return Err("the peers belong to different clusters: check the addresses".to_owned());
    }
    let mine = inner.config.slots.iter().map(|(_, slot)| slot.name.as_str());
    if !mine.eq(first.slots.iter().map(String::as_str)) {
        return Err(format!("the peers were configured with other nodes: {}", first.slots.join(", ")));
    }
    if begun.iter().any(|(_, hello)| hello.over) {
        return Err("the cluster has ended: the memory of a majority of its nodes is lost. \
                    `ticketing-server init --new-identity` begins a new one"
            .to_owned());
    }
    let Some(leader) = begun.iter().find_map(|(_, hello)| hello.leader.clone()) else {
        return Err("the cluster has no leader at the moment".to_owned());
    };
    join(inner, &leader).await
}

/// Asks this member for a place, and whoever it names.
async fn join(inner: &Arc<Inner>, leader: &Member) -> Result<(u128, NodeId), String> {
    let member = inner.member().ok_or(NO_PLACE)?;
    let request = encode(&Join { incarnation: inner.incarnation, member });
    let mut leader = leader.clone();
    for _ in 0..3 {
        let peer = inner.strangers.anybody_at(&leader.peer);
        let deadline = Instant::now() + Duration::from_secs(5);
        let answer = peer.call(kind::JOIN, request.clone(), deadline).await;
        let answer = answer.map_err(|error| format!("the leader at {}: {error}", leader.peer))?;
        match decode(&answer)? {
            Joined::Seated { cluster, node } => return Ok((cluster, node)),
            Joined::NotLeader(Some(other)) => leader = other,
            Joined::NotLeader(None) => return Err("the cluster has no leader at the moment".to_owned()),
            Joined::NotNow(why) => return Err(why),
        }
    }
    Err("the cluster changes its leader at the moment".to_owned())
}

/// Who answers at the other places.
pub(crate) async fn hellos(inner: &Inner, peers: &Peers) -> Vec<(u8, Hello)> {
    let asked = inner.others().map(|(index, slot)| {
        let peer = peers.anybody_at(&slot.peer);
        async move { Some((index, hello(&peer).await.ok()?)) }
    });
    futures_util::future::join_all(asked).await.into_iter().flatten().collect()
}

/// Who answers at this address.
pub(crate) async fn hello(peer: &Peer) -> Result<Hello, CallError> {
    let answer = peer.call(kind::HELLO, Vec::new(), Instant::now() + HELLO_PATIENCE).await?;
    decode(&answer).map_err(|problem| CallError::Failed(problem.into()))
}

/// Takes part in a formation, if it is for this process.
async fn become_founder(
    inner: &Arc<Inner>,
    form: Form,
    done: oneshot::Sender<Result<(), String>>,
) -> Result<Option<Arc<Running>>, String> {
    let founders = form.founders.iter().map(|founder| founder.incarnation);
    let me = founders.clone().nth(usize::from(inner.config.slot));
    let refusal = if me != Some(inner.incarnation) {
        Some("it is not for this process: it has ended and begun again since it was asked".to_owned())
    } else if founders.count() != inner.config.slots.len() || form.cluster == 0 {
        Some("it is not for the nodes that this process was configured with".to_owned())
    } else {
        inner.marker.as_ref().and_then(|marker| marker.noted().objection_to(&form))
    };
    if let Some(refusal) = refusal {
        let _ = done.send(Err(refusal));
        return Ok(None);
    }
    let node = NodeId::from(inner.config.slot) + 1;
    let running = begin(inner, inner.identity(form.cluster, node, Some(form))?).await?;
    // Whoever asked may have given up, and asks again or not.
    let _ = done.send(Ok(()));
    Ok(Some(running))
}

/// Becomes a node. What must not be forgotten of that is on disk before it takes part.
async fn begin(inner: &Arc<Inner>, identity: Identity) -> Result<Arc<Running>, String> {
    let opened = match inner.data_dir.clone() {
        Some(data_dir) => {
            let (identity, inner) = (identity.clone(), Arc::clone(inner));
            let begun = spawn_blocking(move || data_dir.begin(&identity, &inner.config)).await;
            Some(begun.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?)
        }
        None => None,
    };
    run(inner, identity, opened).await
}

/// Takes part as a node that has just become one, or has come back.
async fn run(inner: &Arc<Inner>, identity: Identity, opened: Option<Opened>) -> Result<Arc<Running>, String> {
    let (log, machine) = match opened {
        Some(Opened { log, machine, .. }) => (log, machine),
        None => (Log::default(), Machine::new(inner.config.hash_seed, inner.config.clock)),
    };
    if let Some(marker) = &inner.marker {
        let first_token = identity.form.as_ref().map_or(0, |form| form.first_token);
        marker.enter(identity.cluster, first_token).map_err(|error| error.to_string())?;
    }
    let (identity, node, form) = (identity.cluster_id(), identity.node, identity.form);
    let peers = Peers::new(Party { cluster: identity, node }, inner.config.peer.clone());
    let superseded = Arc::new(Notify::new());
    let config = inner.config.timing.config().map_err(|error| error.to_string())?;
    let network =
        Network { peers: peers.clone(), clock: inner.config.clock, superseded: Arc::clone(&superseded) };
    let raft = Raft::new(node, config, network, log.clone(), machine.clone());
    let raft = raft.await.map_err(|error| error.to_string())?;
    let running = Arc::new(Running {
        identity,
        node,
        raft,
        machine,
        log,
        peers,
        form,
        renounced: watch::Sender::new(None),
        takeover: Mutex::new(None),
        seats_changed: Notify::new(),
        superseded,
        heard: Mutex::new(Instant::now()),
    });
    inner.set_running(Some(Arc::clone(&running)));
    inner.stand(|standing| {
        *standing = Standing {
            stage: Stage::Forming,
            identity: Some(identity),
            node: Some(node),
            ..Standing::default()
        };
    });
    let is_alone = inner.config.slots.len() == 1;
    if is_alone {
        info!("reading who holds what from the disk");
    } else {
        info!(%identity, node, "a node of a cluster");
    }
    if is_alone {
        inner.lead_alone(&running).await?;
    }
    Ok(running)
}

/// Takes part until the end; returns a formation that comes instead.
async fn be_a_node(
    inner: &Arc<Inner>,
    running: Arc<Running>,
    forms: &mut Forms,
) -> Option<(Form, oneshot::Sender<Result<(), String>>)> {
    let mut tasks = JoinSet::new();
    tasks.spawn(office::hold(Arc::clone(inner), Arc::clone(&running)));
    tasks.spawn(seats::keep(Arc::clone(inner), Arc::clone(&running)));
    tasks.spawn(housekeeping::keep(Arc::clone(inner), Arc::clone(&running)));
    tasks.spawn(over::watch(Arc::clone(inner), Arc::clone(&running)));
    let mut standing = inner.standing.subscribe();
    // It changes seldom, and closes when the replication ends.
    let mut replication = running.raft.server_metrics();
    let forming_until = Instant::now() + FORMING_PATIENCE;
    let mut gave_up = false;
    let ended = loop {
        let stage = inner.stage();
        tokio::select! {
            Some((form, done)) = forms.recv() => {
                let succeeds = form.instead_of == u128::from_be_bytes(running.identity.0);
                match (stage, &running.form) {
                    (Stage::Over, _) if succeeds => break Ok(Some((form, done))),
                    (Stage::Forming, Some(current)) if *current == form => {
                        let _ = done.send(Ok(()));
                    }
                    _ => {
                        let _ = done.send(Err(format!(
                            "this process is node {} of cluster {} already",
                            running.node, running.identity
                        )));
                    }
                }
            }
            changed = standing.changed() => {
                if changed.is_err() || *standing.borrow_and_update() == Standing::default() {
                    break Ok(None);
                }
            }
            () = running.superseded.notified() => {
                inner.stand(|standing| standing.stage = Stage::Superseded);
                if let Err(error) = running.log.write(Write::Superseded).await {
                    warn!(%error, "what the peers have said could not be written down");
                }
                break Err("this place has gone to another process: this one must end".to_owned());
            }
            changed = replication.changed() => {
                if changed.is_err() {
                    let why = match &running.raft.metrics().borrow_watched().running_state {
                        Err(fatal) => fatal.to_string(),
                        Ok(()) => "its task has failed".to_owned(),
                    };
                    break Err(format!("the replication of this node has stopped: {why}"));
                }
            }
            () = sleep(forming_until.saturating_duration_since(Instant::now())), if stage == Stage::Forming && running.may_give_up() => {
                gave_up = true;
                break Err("the formation of the cluster was not completed: start again, then initialise it again".to_owned());
            }
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    break Err("a task of this node has failed".to_owned());
                }
            }
        }
    };
    tasks.shutdown().await;
    inner.stand(|standing| standing.office = None);
    // A node that has stopped already is as good.
    let _ = running.raft.shutdown().await;
    running.log.close().await;
    if gave_up && let Some(data_dir) = inner.data_dir.clone() {
        match spawn_blocking(move || data_dir.forget()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "a formation could not be forgotten"),
            Err(error) => warn!(%error, "a formation could not be forgotten"),
        }
    }
    match ended {
        Ok(Some(form)) => {
            warn!(identity = %running.identity, "leaving a cluster that has ended, for a new one");
            inner.set_running(None);
            Some(form)
        }
        Ok(None) => None,
        Err(problem) => {
            error!(problem, "this node ends");
            inner.stand(|standing| {
                if standing.stage != Stage::Superseded {
                    standing.stage = Stage::Broken;
                }
            });
            None
        }
    }
}
