//! Budgets between an agent and its API: the gate before a call, and what the call cost when it is over.

use std::sync::Arc;

use relay::{Call, Observer, Request};

use super::ledger::Ledger;
use super::settings::ProxySettings;
use super::standalone_sessions::counted_under;
use crate::budget::{BudgetGate, Caller};
use agents::registry;
use types::PicoDollars;

/// The gate of a proxy. Without an enforced budget it looks at nothing but the settings.
pub(super) fn of(settings: &ProxySettings) -> BudgetGate {
    let (routes, beside_run) = (settings.routes.clone(), settings.run.is_some());
    let caller = move |request: &Request| {
        let route = routes.iter().find(|route| route.name == request.route)?;
        let conversation = registry::by_name(&route.agent)?.identify(request).conversation;
        let agent = counted_under(route, beside_run, conversation.as_ref()).to_owned();
        Some(Caller { agent, conversation })
    };
    BudgetGate::new(&settings.home(), settings.run, Box::new(caller))
}

/// Tells the gate of each call that is over, and then the ledger.
pub(super) struct BudgetObserver {
    pub(super) gate: BudgetGate,
    pub(super) ledger: Arc<Ledger>,
}

impl Observer for BudgetObserver {
    fn began(&self, request: &Request) {
        self.ledger.began(request);
    }

    fn ended(&self, call: Call) {
        let number = call.request.number;
        if self.gate.holds(number) {
            self.gate.call_over(number, self.spent(&call));
        }
        self.ledger.ended(call);
    }
}

impl BudgetObserver {
    /// Under which key the ledger stores it, and what it cost; `None` where nothing of it is counted.
    fn spent(&self, call: &Call) -> Option<(String, PicoDollars)> {
        let metered = &call.metered;
        let key = metered.response_id.clone().or_else(|| call.request_id.clone())?;
        let cost =
            self.gate.prices().cost(metered.model.as_deref()?, metered.tokens.as_ref()?, metered.tier)?;
        Some((key, cost.amount))
    }
}
