//! What the process does beside serving.

mod admin;
mod dev;
mod table;

use ticketing_cluster::Init;
use ticketing_server::config::{Founding, Operation};

/// Does it, and returns what is to be printed.
pub(crate) async fn run(operation: Operation) -> Result<String, String> {
    match operation {
        Operation::Init(founding) => {
            let Founding { slots, peer, new_identity, token_floor, wait } = *founding;
            let peer = peer.load().await.map_err(|error| error.to_string())?;
            let init = Init { slots, peer, token_floor, new_identity, wait };
            let identity = init.run().await.map_err(|error| error.to_string())?;
            Ok(format!("initialised cluster {identity}\n"))
        }
        Operation::Status { admin, json } => {
            let status = admin::get(admin, "/status").await?;
            if json {
                return Ok(status + "\n");
            }
            let status = serde_json::from_str(&status)
                .map_err(|error| format!("{admin} does not answer as a Ticketing server does: {error}"))?;
            Ok(table::of(&status))
        }
        Operation::Replace { slot, admin } => {
            admin::post(admin, &format!("/replace/{slot}")).await?;
            Ok(format!("a new server may take the place of {slot} within the next ten minutes\n"))
        }
        Operation::Dev { nodes, dir } => dev::run(nodes, dir).await,
    }
}
