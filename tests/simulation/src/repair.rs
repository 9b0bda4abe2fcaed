//! How what went wrong is mended.

use crate::cluster;
use crate::context::Context;
use crate::events::WorldEvent;
use crate::faults::between;
use crate::network::Endpoint;
use crate::time::{MILLISECOND, SECOND};
use crate::trace::Line;
use crate::world::World;

/// How a fault ends.
#[derive(Debug)]
pub(crate) enum Repair {
    Heal(Vec<(Endpoint, Endpoint)>),
    /// A process of this life goes on.
    Resume(Endpoint, u32),
    Start(Endpoint),
    /// A client ends, and begins anew.
    End(Endpoint),
    Speed(Endpoint),
    Accept,
    /// A server that drains hands over, and then ends.
    HandOver(u8, u32),
    Stop(u8, u32),
}

impl World {
    pub(crate) fn repair(&mut self, repair: Repair) {
        match repair {
            Repair::Heal(ways) => {
                let Context { now, queue, random, network, .. } = &mut self.ctx;
                network.heal(*now, queue, random, &ways);
                self.ctx.note(Line::Healed(ways));
                self.something_changed();
            }
            Repair::Resume(endpoint, life) => self.resume(endpoint, life),
            Repair::Start(endpoint) => self.start(endpoint),
            Repair::End(endpoint) => {
                if let Endpoint::Client(number) = endpoint
                    && !self.ctx.calm
                {
                    self.end_client(number, false);
                    self.repair_in(SECOND, Repair::Start(endpoint));
                }
            }
            Repair::Speed(endpoint) => {
                self.ctx.network.slow_down(endpoint, 0);
                self.ctx.note(Line::Slow(endpoint, 0));
            }
            Repair::Accept => {
                self.ctx.refusal = 0.0;
                self.ctx.note(Line::Refusing(false));
            }
            Repair::HandOver(slot, life) => {
                let leads = |node: &crate::server::Node| node.life == life && node.raft.leading.is_some();
                if self.nodes.get(usize::from(slot)).is_some_and(leads) {
                    cluster::elect(&mut self.ctx, &mut self.nodes);
                }
            }
            Repair::Stop(slot, life) => {
                if self.nodes.get(usize::from(slot)).is_none_or(|node| node.life != life) {
                    return;
                }
                if self.may_end(slot) {
                    self.kill_node(slot);
                } else {
                    self.ctx.world_in(SECOND, WorldEvent::Repair(Repair::Stop(slot, life)));
                }
            }
        }
    }

    fn resume(&mut self, endpoint: Endpoint, life: u32) {
        let deferred = match endpoint {
            Endpoint::Node(slot) => {
                let node = self.nodes.get_mut(usize::from(slot));
                let Some(node) = node.filter(|node| node.paused && node.life == life) else { return };
                node.pause(&self.ctx, false);
                std::mem::take(&mut node.deferred)
            }
            Endpoint::Client(number) => {
                let client = self.clients.get_mut(usize::from(number));
                let Some(client) = client.filter(|client| client.paused && client.life == life) else {
                    return;
                };
                client.paused = false;
                std::mem::take(&mut client.deferred)
            }
        };
        self.ctx.note(Line::Resumed(endpoint));
        for event in deferred {
            self.ctx.queue.push(self.ctx.now, event);
        }
        self.something_changed();
    }

    fn start(&mut self, endpoint: Endpoint) {
        match endpoint {
            Endpoint::Node(slot) => {
                let Some(node) = self.nodes.get_mut(usize::from(slot)).filter(|node| !node.is_up()) else {
                    return;
                };
                node.begin(&mut self.ctx);
                let id = node.id;
                self.ctx.note(Line::Up(endpoint, id));
                if id == 0 {
                    self.ctx.world_in(100 * MILLISECOND, WorldEvent::Join(slot));
                }
                self.something_changed();
            }
            Endpoint::Client(number) => {
                let Some(client) = self.clients.get_mut(usize::from(number)).filter(|it| !it.up) else {
                    return;
                };
                client.begin(&mut self.ctx);
                self.ctx.note(Line::Up(endpoint, 0));
            }
        }
    }

    /// The last fault was the last one: what is broken is mended now.
    pub(crate) fn calm_down(&mut self) {
        self.ctx.calm = true;
        self.ctx.burst = false;
        self.ctx.refusal = 0.0;
        self.ctx.note(Line::Calm);
        for endpoint in self.nodes().into_iter().chain(self.clients()) {
            self.ctx.network.slow_down(endpoint, 0);
            let life = match endpoint {
                Endpoint::Node(slot) => self.nodes.get(usize::from(slot)).map(|node| node.life),
                Endpoint::Client(number) => self.clients.get(usize::from(number)).map(|it| it.life),
            };
            let life = life.unwrap_or(0);
            self.resume(endpoint, life);
            if let Endpoint::Node(slot) = endpoint
                && self.nodes.get(usize::from(slot)).is_some_and(|node| node.server.draining)
            {
                self.ctx.world_in(SECOND, WorldEvent::Repair(Repair::Stop(slot, life)));
            }
            self.start(endpoint);
        }
        let ways = between(&self.nodes(), &self.nodes());
        let ways = [ways, between(&self.nodes(), &self.clients())].concat();
        let Context { now, queue, random, network, .. } = &mut self.ctx;
        network.mend(*now, queue, random, &ways);
        self.something_changed();
    }
}
