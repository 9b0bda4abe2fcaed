//! A whole cluster on this machine, to try things out: one process a node, with
//! addresses, secret and logs arranged. A node that ends is started again, as a
//! supervisor would.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ticketing_cluster::{Init, Slot, Slots};
use ticketing_peer::{Config, Limits, Secret};
use tokio::process::{Child, Command};
use tokio::signal::ctrl_c;
use tokio::time::{sleep, timeout};

use crate::process::{Signal, Signals};

/// How long the nodes may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a node may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// What a node needs to be started.
struct Plan {
    slots: Slots,
    admin: Vec<u16>,
    dir: PathBuf,
}

pub(crate) async fn run(nodes: u8, dir: Option<PathBuf>) -> Result<String, String> {
    let mut signals = Signals::catch().map_err(|error| format!("signals cannot be caught: {error}"))?;
    let (dir, temporary) = match dir {
        Some(dir) => (dir, false),
        None => (std::env::temp_dir().join(format!("ticketing-dev-{}", std::process::id())), true),
    };
    let wrong = |error: std::io::Error| format!("{}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(wrong)?;
    let secret = secret(&dir.join("peer-secret")).map_err(wrong)?;
    let plan = plan(nodes, &dir)?;
    let mut children = Vec::new();
    for (index, _) in plan.slots.iter() {
        children.push(plan.start(index)?);
    }
    let init = Init {
        slots: plan.slots.clone(),
        peer: Config { secret, tls: None, limits: Limits::default() },
        token_floor: 0,
        new_identity: false,
        wait: PATIENCE,
    };
    let identity = tokio::select! {
        identity = init.run() => identity.map_err(|error| error.to_string())?,
        _ = ctrl_c() => return Err("interrupted".to_owned()),
    };
    say(&plan.welcome(&identity.to_string(), &children));
    loop {
        tokio::select! {
            signal = signals.next() => if signal == Signal::Stop { break },
            (index, how) = first_to_end(&mut children) => {
                let name = plan.name(index);
                say(&format!("node {name} has ended ({how}); it is started again, and comes back as another node\n"));
                sleep(Duration::from_millis(200)).await;
                if let Some(child) = children.get_mut(usize::from(index)) {
                    *child = plan.start(index)?;
                    say(&format!("node {name} is process {}\n", child.id().unwrap_or(0)));
                }
            }
        }
    }
    for child in &children {
        terminate(child);
    }
    for child in &mut children {
        if timeout(GRACE, child.wait()).await.is_err() {
            // It was told to end and does not; whatever comes of this, we end too.
            let _ = child.kill().await;
        }
    }
    if temporary {
        // What cannot be removed is a few small files in a folder for such.
        let _ = std::fs::remove_dir_all(&dir);
    }
    Ok("stopped\n".to_owned())
}

/// A line for whoever watches; without a standard output nobody does.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn secret(path: &Path) -> std::io::Result<Secret> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let text = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())?;
    Secret::new(text.as_bytes()).map_err(std::io::Error::other)
}

/// Free addresses for everybody.
fn plan(nodes: u8, dir: &Path) -> Result<Plan, String> {
    let wrong = |error: std::io::Error| format!("no free port: {error}");
    // All are bound at the same time, so that no two are the same.
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong);
    let bound = (0..3 * nodes).map(|_| bind()).collect::<Result<Vec<_>, _>>()?;
    let ports = bound.iter().map(|listener| Ok(listener.local_addr()?.port()));
    let ports = ports.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let slots = ('a'..).zip(ports.chunks(3)).map(|(name, ports)| Slot {
        name: name.to_string(),
        peer: format!("127.0.0.1:{}", ports.first().unwrap_or(&0)),
        client: format!("127.0.0.1:{}", ports.get(1).unwrap_or(&0)),
    });
    let slots = Slots::new(slots.collect()).map_err(|error| error.to_string())?;
    let admin = ports.chunks(3).filter_map(|ports| ports.get(2).copied()).collect();
    Ok(Plan { slots, admin, dir: dir.to_owned() })
}

impl Plan {
    fn name(&self, index: u8) -> &str {
        self.slots.get(index).map_or("?", |slot| &slot.name)
    }

    fn admin(&self, index: u8) -> u16 {
        self.admin.get(usize::from(index)).copied().unwrap_or(0)
    }

    fn start(&self, index: u8) -> Result<Child, String> {
        let name = self.name(index);
        let path = self.dir.join(format!("{name}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(|error| format!("{}: {error}", path.display()))?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("--cluster")
            .arg(self.slots.to_string())
            .args(["--slot", name, "--peer-secret-file"])
            .arg(self.dir.join("peer-secret"))
            .arg("--admin")
            .arg(format!("127.0.0.1:{}", self.admin(index)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        // Ctrl-C in a terminal is for us, who end the nodes in order.
        #[cfg(unix)]
        command.process_group(0);
        command.spawn().map_err(|error| format!("node {name} cannot be started: {error}"))
    }

    fn welcome(&self, identity: &str, children: &[Child]) -> String {
        let mut page = format!("a cluster of {} nodes, identity {identity}\n\n", self.slots.len());
        for ((index, slot), child) in self.slots.iter().zip(children) {
            let (name, client, admin) = (&slot.name, &slot.client, self.admin(index));
            let pid = child.id().unwrap_or(0);
            page += &format!("  node {name}  clients {client}  admin 127.0.0.1:{admin}  process {pid}\n");
        }
        let clients = self.slots.iter().map(|(_, slot)| slot.client.as_str()).collect::<Vec<_>>().join(",");
        page += &format!(
            "\nlogs in {}\n\nTake a lock:    ticketing --server {clients} lock demo -- echo mine\n\
             Look at it:     ticketing-server status --admin 127.0.0.1:{}\n\
             Break it:       kill -9 any of the processes, and look again\n\
             End it:         Ctrl-C\n",
            self.dir.display(),
            self.admin(0),
        );
        page
    }
}

/// The first node that ends, and how.
async fn first_to_end(children: &mut [Child]) -> (u8, String) {
    loop {
        for (index, child) in (0..).zip(children.iter_mut()) {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return (index, status.to_string()),
                Err(error) => return (index, error.to_string()),
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(unix)]
fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

#[cfg(not(unix))]
fn terminate(_child: &Child) {}
