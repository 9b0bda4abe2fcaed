//! How a server takes office, and gives it up, as its node's leadership comes and goes.

use ticketing_engine::{Config, Engine, Office};

use super::Node;
use super::driver::PATIENCE;
use crate::cluster::Command;
use crate::context::Context;
use crate::events::NodeEvent;
use crate::mutant::Mutant;
use crate::time::MILLISECOND;
use crate::trace::Line;

/// Before an office that could not be taken is asked for again.
const RETRY: u64 = 5 * MILLISECOND;

impl Node {
    /// Looks who leads now, as one looks at a value that may have changed meanwhile.
    pub(crate) fn look(&mut self, ctx: &mut Context) {
        let leads = self.raft.leading.is_some().then_some(self.raft.term);
        self.server.leads = leads;
        if let Some(office) = self.server.decider.office()
            && Some(office.term) != leads
            && !ctx.plan.is(Mutant::DeafToDeposition)
        {
            let now = self.local(ctx);
            self.server.decider.leave_office(now);
            self.out_of_office(ctx, office);
        }
        let leader = self.raft.leader;
        if self.server.hint != leader {
            self.server.hint = leader;
            let conns = self.server.conns.keys().copied().collect::<Vec<_>>();
            for id in conns {
                if let Some(conn) = self.server.conns.get_mut(&id) {
                    conn.say_leader(leader);
                }
                self.flush(ctx, id);
            }
        }
        self.seek_office(ctx);
        self.turn_soon(ctx);
    }

    /// Asks for an office if this node leads and has none.
    fn seek_office(&mut self, ctx: &mut Context) {
        let Some(term) = self.server.leads else { return };
        if self.server.decider.office().is_some() || self.server.asked || self.server.draining {
            return;
        }
        if ctx.plan.is(Mutant::OneOfficeATerm) && self.server.last.term == term {
            return;
        }
        let run = if self.server.last.term == term { self.server.last.run + 1 } else { 1 };
        let office = Office { term, run };
        self.server.last = office;
        self.server.asked = true;
        self.propose_soon(ctx, Command::Office { office, first_token: ctx.plan.first_token });
        ctx.node_in(PATIENCE, self.slot, self.life, NodeEvent::Office { office, begun: false });
        if ctx.plan.is(Mutant::OfficeAtElection) {
            self.take_office(ctx, office);
        }
    }

    /// What became of a proposed office.
    pub(crate) fn office(&mut self, ctx: &mut Context, office: Office, begun: bool) {
        if !self.server.asked || self.server.last != office {
            return;
        }
        self.server.asked = false;
        if !begun {
            return ctx.node_in(RETRY, self.slot, self.life, NodeEvent::Leads);
        }
        if self.server.leads == Some(office.term) {
            self.take_office(ctx, office);
        }
    }

    fn take_office(&mut self, ctx: &mut Context, office: Office) {
        if self.server.decider.office() == Some(office) {
            return;
        }
        let now = self.local(ctx);
        let mut next_token = self.replica.place().first_token;
        if ctx.plan.is(Mutant::OfficeAtElection) {
            next_token = next_token.max(ctx.plan.first_token);
        }
        let config = Config { hash_seed: self.hash_seed, next_token, ..Config::default() };
        let engine = if ctx.plan.is(Mutant::ForgetsTheTable) {
            Engine::new(config)
        } else {
            Engine::restore(config, self.replica.table())
        };
        self.server.decider.take_office(now, office, engine);
        self.server.in_office_since = ctx.now;
        self.server.queues.begin();
        ctx.ledger.count.offices += 1;
        ctx.note(Line::InOffice { slot: self.slot, office, held: self.replica.table().held() });
        self.turn_soon(ctx);
    }

    /// The decider has given its office up.
    pub(super) fn out_of_office(&mut self, ctx: &mut Context, office: Office) {
        ctx.note(Line::OutOfOffice { slot: self.slot, office });
        // If the node still leads, it takes another one.
        ctx.node_in(0, self.slot, self.life, NodeEvent::Leads);
    }
}
