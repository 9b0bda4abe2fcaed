//! What goes wrong in a run.

use crate::cluster;
use crate::context::Context;
use crate::events::WorldEvent;
use crate::mutant::Mutant;
use crate::network::{Endpoint, Side};
use crate::repair::Repair;
use crate::time::{MILLISECOND, MINUTE, SECOND, Time};
use crate::trace::Line;
use crate::world::World;

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillNode,
    PowerLoss,
    StopNode,
    PauseNode,
    IsolateNode,
    CutPair,
    CutOneWay,
    Split,
    CutClient,
    SlowEndpoint,
    Depose,
    ElectionStorm,
    Refusals,
    BreakConnections,
    KillClient,
    PauseClient,
    Burst,
}

const FAULTS: [(u32, Fault); 17] = [
    (14, Fault::KillNode),
    (2, Fault::PowerLoss),
    (5, Fault::StopNode),
    (12, Fault::PauseNode),
    (9, Fault::IsolateNode),
    (5, Fault::CutPair),
    (7, Fault::CutOneWay),
    (5, Fault::Split),
    (8, Fault::CutClient),
    (6, Fault::SlowEndpoint),
    (8, Fault::Depose),
    (2, Fault::ElectionStorm),
    (6, Fault::Refusals),
    (12, Fault::BreakConnections),
    (6, Fault::KillClient),
    (7, Fault::PauseClient),
    (10, Fault::Burst),
];

type Ways = Vec<(Endpoint, Endpoint)>;

/// Both ways between two groups.
pub(crate) fn between(some: &[Endpoint], others: &[Endpoint]) -> Ways {
    let pairs = some.iter().flat_map(|&one| others.iter().map(move |&other| (one, other)));
    pairs.filter(|(one, other)| one != other).flat_map(|(one, other)| [(one, other), (other, one)]).collect()
}

impl World {
    /// Something goes wrong, and the next thing soon.
    pub(crate) fn fault(&mut self) {
        if self.ctx.calm {
            return;
        }
        self.ctx.ledger.count.faults += 1;
        let pause = self.ctx.random.around(self.ctx.plan.fault_pause);
        self.ctx.world_in(pause, WorldEvent::Fault);
        if self.ctx.plan.loses_majority
            && self.ctx.now > self.ctx.plan.faulty_for / 2
            && !self.ctx.ledger.is_over
        {
            return self.lose_majority();
        }
        if let Some(fault) = self.ctx.random.weighted(&FAULTS) {
            self.inflict(fault);
        }
    }

    fn inflict(&mut self, fault: Fault) {
        let node = self.any_node();
        let client = self.any_client();
        match fault {
            Fault::KillNode => self.kill_node(node),
            Fault::PowerLoss => {
                if self.ctx.plan.durable {
                    (0..self.ctx.plan.nodes).for_each(|slot| self.kill_node(slot));
                } else {
                    self.kill_node(node);
                }
            }
            Fault::StopNode => self.stop_node(node),
            Fault::PauseNode => self.pause(Endpoint::Node(node)),
            Fault::IsolateNode => {
                let everybody = self.nodes().into_iter().chain(self.clients()).collect::<Vec<_>>();
                self.cut(between(&[Endpoint::Node(node)], &everybody));
            }
            Fault::CutPair => {
                let other = self.any_node();
                self.cut(between(&[Endpoint::Node(node)], &[Endpoint::Node(other)]));
            }
            Fault::CutOneWay => {
                let others = self.nodes();
                let mut ways = between(&[Endpoint::Node(node)], &others);
                let outward = self.ctx.random.chance(0.5);
                ways.retain(|(from, _)| (*from == Endpoint::Node(node)) == outward);
                self.cut(ways);
            }
            Fault::Split => {
                let (mut some, mut others) = (Vec::new(), Vec::new());
                for endpoint in self.nodes().into_iter().chain(self.clients()) {
                    if self.ctx.random.chance(0.5) { some.push(endpoint) } else { others.push(endpoint) }
                }
                self.cut(between(&some, &others));
            }
            Fault::CutClient => {
                let mut ways = between(&[Endpoint::Client(client)], &[Endpoint::Node(node)]);
                if self.ctx.random.chance(0.5) {
                    ways.remove(self.ctx.random.index(2));
                }
                self.cut(ways);
            }
            Fault::SlowEndpoint => {
                let endpoint =
                    if self.ctx.random.chance(0.7) { Endpoint::Node(node) } else { Endpoint::Client(client) };
                let by = self.ctx.plan.slowness(&mut self.ctx.random);
                self.ctx.network.slow_down(endpoint, by);
                self.ctx.note(Line::Slow(endpoint, by));
                self.repair_in(MINUTE, Repair::Speed(endpoint));
            }
            Fault::Depose => cluster::elect(&mut self.ctx, &mut self.nodes),
            Fault::ElectionStorm => {
                for _ in 0..self.ctx.random.between(5, 30) {
                    let pause = self.ctx.random.between(0, 3 * SECOND);
                    self.ctx.world_in(pause, WorldEvent::Depose);
                }
            }
            Fault::Refusals => {
                self.ctx.refusal = if self.ctx.random.chance(0.2) { 0.6 } else { 0.1 };
                self.ctx.note(Line::Refusing(true));
                self.repair_in(20 * SECOND, Repair::Accept);
                // What follows a batch that is refused shows only where something does.
                self.inflict(Fault::Burst);
            }
            Fault::BreakConnections => self.break_connections(),
            Fault::KillClient => {
                let by_word = self.ctx.random.chance(0.7);
                self.end_client(client, !by_word);
                self.repair_in(10 * SECOND, Repair::Start(Endpoint::Client(client)));
            }
            Fault::PauseClient => self.pause(Endpoint::Client(client)),
            Fault::Burst => {
                self.ctx.world_in(0, WorldEvent::Burst(true));
                let pause = self.ctx.random.between(SECOND, 20 * SECOND);
                self.ctx.world_in(pause, WorldEvent::Burst(false));
            }
        }
    }

    fn any_node(&mut self) -> u8 {
        let any = self.ctx.random.index(self.nodes.len());
        // The one that leads is the most interesting one.
        let leader = cluster::leader(&self.ctx, &self.nodes).filter(|_| self.ctx.random.chance(0.4));
        u8::try_from(leader.unwrap_or(any)).unwrap_or(0)
    }

    fn any_client(&mut self) -> u8 {
        u8::try_from(self.ctx.random.index(self.clients.len())).unwrap_or(0)
    }

    pub(crate) fn nodes(&self) -> Vec<Endpoint> {
        (0..self.ctx.plan.nodes).map(Endpoint::Node).collect()
    }

    pub(crate) fn clients(&self) -> Vec<Endpoint> {
        (0..self.ctx.plan.clients).map(Endpoint::Client).collect()
    }

    pub(crate) fn repair_in(&mut self, mean: Time, repair: Repair) {
        let pause = 10 * MILLISECOND + self.ctx.random.around(mean);
        self.ctx.world_in(pause, WorldEvent::Repair(repair));
    }

    fn cut(&mut self, ways: Ways) {
        let Context { now, queue, random, network, .. } = &mut self.ctx;
        network.cut(*now, queue, random, &ways);
        self.ctx.note(Line::Cut(ways.clone()));
        let mean = if self.ctx.random.chance(0.2) { 2 * MINUTE } else { 10 * SECOND };
        self.repair_in(mean, Repair::Heal(ways));
        self.something_changed();
    }

    /// Who reaches whom is another matter now: whoever leads and whoever follows
    /// notice after a while.
    pub(crate) fn something_changed(&mut self) {
        let soon = self.ctx.random.between(400 * MILLISECOND, 1_200 * MILLISECOND);
        self.ctx.world_in(soon, WorldEvent::Elect);
        let soon = self.ctx.random.between(50 * MILLISECOND, 300 * MILLISECOND);
        self.ctx.world_in(soon, WorldEvent::Resync);
    }

    /// Voters whose memory lives.
    fn remembering(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_up() && self.ctx.members.is_voter(node.id)).count()
    }

    /// Whether a node can end, and the cluster not end with it.
    pub(crate) fn may_end(&self, slot: u8) -> bool {
        let Some(node) = self.nodes.get(usize::from(slot)).filter(|node| node.is_up()) else { return false };
        let forgets = !self.ctx.plan.durable && self.ctx.members.is_voter(node.id);
        !forgets || self.remembering() > self.ctx.members.majority()
    }

    /// A node ends, unless the cluster would end with it.
    pub(crate) fn kill_node(&mut self, slot: u8) {
        if !self.may_end(slot) {
            return;
        }
        let by_word = self.ctx.random.chance(0.7);
        self.end_node(slot, by_word);
        let mean = if self.ctx.random.chance(0.3) { 50 * MILLISECOND } else { 15 * SECOND };
        self.repair_in(mean, Repair::Start(Endpoint::Node(slot)));
    }

    /// A process ends; `by_word`: its kernel lives and tells the others.
    fn end_node(&mut self, slot: u8, by_word: bool) {
        let endpoint = Endpoint::Node(slot);
        self.hang_up_all(endpoint, Side::Server, by_word);
        self.with_node(slot, |ctx, node| {
            let learner = node.id;
            ctx.members.learners.retain(|&other| other != learner || ctx.plan.durable);
            node.end(ctx);
        });
        self.ctx.note(Line::Down(endpoint, if by_word { "killed" } else { "gone" }));
        self.something_changed();
    }

    pub(crate) fn end_client(&mut self, number: u8, vanishes: bool) {
        let endpoint = Endpoint::Client(number);
        if !self.clients.get(usize::from(number)).is_some_and(|client| client.up) {
            return;
        }
        self.hang_up_all(endpoint, Side::Client, !vanishes);
        self.with_client(number, |ctx, client| client.end(ctx));
        self.ctx.note(Line::Down(endpoint, if vanishes { "gone" } else { "killed" }));
    }

    fn hang_up_all(&mut self, endpoint: Endpoint, side: Side, by_word: bool) {
        let Context { now, queue, random, network, .. } = &mut self.ctx;
        for id in network.ids_of(endpoint) {
            if by_word {
                network.break_off(*now, queue, random, id);
            } else {
                network.vanish(*now, queue, random, id, side);
            }
            network.give_up(id, side);
        }
    }

    fn break_connections(&mut self) {
        let ids = self.ctx.network.ids().collect::<Vec<_>>();
        let share = if self.ctx.random.chance(0.2) { 1.0 } else { 0.25 };
        for id in ids {
            if !self.ctx.random.chance(share) {
                continue;
            }
            if let Some((client, slot)) = self.ctx.network.conn(id).map(|conn| (conn.client, conn.slot)) {
                self.ctx.note(Line::Broken { conn: id, client, slot });
            }
            let Context { now, queue, random, network, .. } = &mut self.ctx;
            if random.chance(0.6) {
                network.break_off(*now, queue, random, id);
            } else {
                // One end loses it, and the other one hears nothing of that.
                let side = if random.chance(0.7) { Side::Client } else { Side::Server };
                network.vanish(*now, queue, random, id, side);
                self.ended(id, side);
            }
        }
    }

    fn pause(&mut self, endpoint: Endpoint) {
        let life = match endpoint {
            Endpoint::Node(slot) => {
                let Some(node) = self.nodes.get_mut(usize::from(slot)).filter(|node| node.runs()) else {
                    return;
                };
                node.pause(&self.ctx, true);
                node.life
            }
            Endpoint::Client(number) => {
                let client = self.clients.get_mut(usize::from(number));
                let Some(client) = client.filter(|client| client.runs()) else { return };
                client.paused = true;
                client.life
            }
        };
        self.ctx.note(Line::Paused(endpoint));
        let mean = if self.ctx.random.chance(0.5) { SECOND } else { 12 * SECOND };
        // Some clients never go on.
        let ends = matches!(endpoint, Endpoint::Client(_)) && self.ctx.random.chance(0.3);
        self.repair_in(mean, if ends { Repair::End(endpoint) } else { Repair::Resume(endpoint, life) });
        self.something_changed();
    }

    /// A planned stop: the server drains, hands over and ends.
    fn stop_node(&mut self, slot: u8) {
        if !self.may_end(slot) {
            return;
        }
        let Some(node) = self.nodes.get_mut(usize::from(slot)).filter(|node| node.runs()) else { return };
        node.drain(&mut self.ctx);
        let life = node.life;
        self.ctx.note(Line::Draining(Endpoint::Node(slot)));
        self.repair_in(50 * MILLISECOND, Repair::HandOver(slot, life));
        let pause = self.ctx.random.between(SECOND, 5 * SECOND);
        self.ctx.world_in(pause, WorldEvent::Repair(Repair::Stop(slot, life)));
    }

    /// More processes at once lose their memory than the cluster can bear.
    fn lose_majority(&mut self) {
        let majority = self.ctx.members.majority();
        let voters = self.ctx.members.voters.clone();
        let slots = voters.iter().filter_map(|&voter| self.ctx.members.place(voter)).map(|place| place.0);
        for slot in slots.take(majority).collect::<Vec<_>>() {
            self.end_node(slot, true);
            self.repair_in(SECOND, Repair::Start(Endpoint::Node(slot)));
        }
        self.ctx.ledger.is_over = true;
        if self.ctx.plan.is(Mutant::SurvivorsGoOn) {
            let lives = |voter: &u64| self.nodes.iter().any(|node| node.is_up() && node.id == *voter);
            self.ctx.members.voters.retain(lives);
        }
    }
}
