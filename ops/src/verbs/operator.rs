//! `cadastre operator`: people and scripts that operate, or only look.

use cadastre_protocol::admin::{NewOperator, Nothing, OperatorRole, OperatorView};
use serde_json::Value;

use super::{now_ms, print, print_token, rows, token_words};
use crate::api::typed;
use crate::cli::{Common, OperatorVerb};
use crate::connect;
use crate::error::{CliError, Outcome};
use crate::show;
use crate::show::table::Table;

pub async fn run(common: &Common, verb: OperatorVerb) -> Result<Outcome, CliError> {
    let api = connect::authority(common)?;
    match verb {
        OperatorVerb::Create { name, role } => {
            let answer = api.post("/v1/operators", &NewOperator { name, role: role.into() }).await?;
            print(common, answer, |answer| {
                let operator: OperatorView = typed(answer)?;
                let (name, role) = (operator.name, word(operator.role));
                show::line(format!("{role} {name} is defined; `cadastre operator token {name}` makes its token"));
                Ok(())
            })
        }
        OperatorVerb::Token { name } => {
            let answer = api.post(&format!("/v1/operators/{name}/tokens"), &Nothing {}).await?;
            print_token(common, answer, name.as_ref())
        }
        OperatorVerb::Revoke { name, token_id } => {
            let answer = api.delete(&format!("/v1/operators/{name}/tokens/{token_id}")).await?;
            print(common, answer, |_| {
                show::line(format!("token {token_id} of {name} is revoked"));
                Ok(())
            })
        }
        OperatorVerb::List => print(common, api.get("/v1/operators").await?, list),
    }
}

fn list(answer: Value) -> Result<(), CliError> {
    let operators: Vec<OperatorView> = typed(rows(answer, "operators"))?;
    let mut table = Table::new(&["name", "role", "tokens"]);
    for operator in operators {
        let tokens = token_words(&operator.tokens, now_ms());
        table.row(vec![operator.name.to_string(), word(operator.role).to_owned(), tokens]);
    }
    table.print("no operators");
    Ok(())
}

fn word(role: OperatorRole) -> &'static str {
    match role {
        OperatorRole::Operator => "operator",
        OperatorRole::Viewer => "viewer",
    }
}
