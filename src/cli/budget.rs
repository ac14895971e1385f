//! The options of `budget` and `prices`.

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};

use super::one_of;
use config::budget::{BudgetKey, BudgetScope, Kind, Per, dollars};
use types::PicoDollars;

#[derive(Debug, Args)]
pub struct Budget {
    #[command(subcommand)]
    pub action: Option<BudgetAction>,
}

#[derive(Debug, Subcommand)]
pub enum BudgetAction {
    /// Show how much of each budget is spent
    Show {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
    /// Write a budget to config.toml
    Set {
        /// What the amount is for
        #[arg(value_parser = per())]
        per: Per,
        /// Dollars
        #[arg(value_name = "USD", value_parser = dollars)]
        usd: PicoDollars,
        #[command(flatten)]
        only: BudgetOnly,
        /// Refuse calls beyond it, where the proxy runs
        #[arg(long)]
        enforce: bool,
    },
    /// Remove a budget from config.toml
    Unset {
        /// What the amount is for
        #[arg(value_parser = per())]
        per: Per,
        #[command(flatten)]
        only: BudgetOnly,
    },
    /// Add an amount to a budget that is used up, so that its runs can go on
    #[command(
        allow_missing_positional = true,
        after_help = "It holds until the day, week or month ends, or for one session alone (--session). config.toml stays as it \
                      is. Without BUDGET it is added to every enforced budget that is used up. Not for agents: from inside a \
                      run it is refused."
    )]
    Raise {
        /// Which budget: what it is for
        #[arg(value_name = "BUDGET", value_parser = per())]
        per: Option<Per>,
        /// Dollars to add
        #[arg(value_name = "AMOUNT", value_parser = dollars)]
        amount: PicoDollars,
        #[command(flatten)]
        only: BudgetOnly,
        /// For this session alone: its id, name, the agent's session id, or the beginning of an id
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
    },
}

fn per() -> impl TypedValueParser<Value = Per> {
    one_of(Per::ALL.iter().map(|&per| (per.as_str(), per, "")))
}

#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct BudgetOnly {
    /// Only calls of this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only of this project: a folder's name or path, or owner/name of the repository
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only on this branch
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Only of sessions with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
}

impl BudgetOnly {
    /// `project`: how a project's name is understood.
    pub fn of(&self, per: Per, project: impl Fn(&str) -> String) -> BudgetKey {
        let kinds = [
            (Kind::Agent, self.agent.clone()),
            (Kind::Project, self.project.as_deref().map(project)),
            (Kind::Branch, self.branch.clone()),
            (Kind::Tag, self.tag.clone()),
        ];
        let only = kinds.into_iter().find_map(|(kind, name)| Some(BudgetScope { kind, name: name? }));
        BudgetKey { per, only }
    }
}

#[derive(Debug, Args)]
pub struct Prices {
    /// Only models whose names contain this
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}
