//! The allowlist: thirteen reads and never another method, their parameters typed on the way in and
//! canonical on the way out.
//!
//! One table (`declared`) lists the parameters of each method in the order of the Starknet API
//! (`starknet_api_openrpc.json`, 0.9 to 0.10). Parameters are accepted by name or by position, and
//! always written by name in that order, because some nodes refuse optional parameters by position.
//! Other parameters are refused.

use super::json::ParamError::{
    self, Duplicate, FormerTag, Malformed, MalformedItem, Missing, TooMany, Unknown,
};
use super::json::{
    FELT, Json, MemberError, felt, felts, write_felt, write_felts, write_integer, write_list,
};
use crate::felt::Felt;
use crate::named::named;
use crate::tx::Transaction;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The most transactions in one `estimateFee`: a wallet may deploy and invoke together, and each
/// transaction costs the node an execution under its global lock.
const MAX_TRANSACTIONS: usize = 4;

/// The tag of the block being built, before version 0.9 of the API.
const FORMER_TAG: &str = "pending";
const BLOCK_FORM: &str = "latest, pre_confirmed, l1_accepted, {\"block_number\": integer} or \
     {\"block_hash\": felt}";

named! {
    /// A read method of the Starknet JSON-RPC API that the gateway serves.
    #[expect(missing_docs, reason = "each is the method of its name in the Starknet API")]
    pub enum Method {
        SpecVersion = "starknet_specVersion",
        ChainId = "starknet_chainId",
        BlockNumber = "starknet_blockNumber",
        GetBlockWithTxHashes = "starknet_getBlockWithTxHashes",
        GetTransactionByHash = "starknet_getTransactionByHash",
        GetTransactionReceipt = "starknet_getTransactionReceipt",
        GetTransactionStatus = "starknet_getTransactionStatus",
        GetClassHashAt = "starknet_getClassHashAt",
        GetClass = "starknet_getClass",
        GetClassAt = "starknet_getClassAt",
        GetNonce = "starknet_getNonce",
        Call = "starknet_call",
        EstimateFee = "starknet_estimateFee",
    }
}

/// The methods that a deployment permits: the thirteen, or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodSet([bool; Method::ALL.len()]);

impl MethodSet {
    /// The set of these methods.
    pub fn new(methods: &[Method]) -> Self {
        Self(Method::ALL.map(|method| methods.contains(&method)))
    }

    /// Whether `method` is permitted.
    pub fn contains(&self, method: Method) -> bool {
        Method::ALL
            .into_iter()
            .zip(self.0)
            .any(|(member, is_in)| member == method && is_in)
    }
}

/// The name and type of a parameter.
#[derive(Clone, Copy, Debug)]
struct Declared {
    name: &'static str,
    kind: Kind,
    optional: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Block,
    Felt,
    Call,
    Transactions,
    SimulationFlags,
    ResponseFlags,
}

const fn required(name: &'static str, kind: Kind) -> Declared {
    Declared {
        name,
        kind,
        optional: false,
    }
}

const BLOCK: Declared = required("block_id", Kind::Block);
const CONTRACT: Declared = required("contract_address", Kind::Felt);
const TRANSACTION: Declared = required("transaction_hash", Kind::Felt);

const CLASS: Declared = required("class_hash", Kind::Felt);
const CALL: Declared = required("request", Kind::Call);
const TRANSACTIONS: Declared = required("request", Kind::Transactions);
const SIMULATION_FLAGS: Declared = required("simulation_flags", Kind::SimulationFlags);
const RESPONSE_FLAGS: Declared = Declared {
    name: "response_flags",
    kind: Kind::ResponseFlags,
    optional: true,
};

/// The parameters of `method`, in the order of the API.
fn declared(method: Method) -> &'static [Declared] {
    match method {
        Method::SpecVersion | Method::ChainId | Method::BlockNumber => &[],
        Method::GetBlockWithTxHashes => &[BLOCK],
        Method::GetTransactionByHash => &[TRANSACTION, RESPONSE_FLAGS],
        Method::GetTransactionReceipt | Method::GetTransactionStatus => &[TRANSACTION],
        Method::GetClassHashAt | Method::GetClassAt | Method::GetNonce => &[BLOCK, CONTRACT],
        Method::GetClass => &[BLOCK, CLASS],
        Method::Call => &[CALL, BLOCK],
        Method::EstimateFee => &[TRANSACTIONS, SIMULATION_FLAGS, BLOCK],
    }
}

/// A block, by hash, by number or by tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockId {
    /// `{"block_hash": FELT}`
    Hash(Felt),
    /// `{"block_number": INTEGER}`
    Number(u64),
    /// The newest accepted block.
    Latest,
    /// The block being built.
    PreConfirmed,
    /// The newest block accepted on L1.
    L1Accepted,
}

/// A view call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCall {
    /// The contract that is called.
    pub contract_address: Felt,
    /// The entrypoint's selector.
    pub entry_point_selector: Felt,
    /// Its arguments.
    pub calldata: Vec<Felt>,
}

/// The value of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A block.
    Block(BlockId),
    /// An address or a hash.
    Felt(Felt),
    /// A view call.
    Call(FunctionCall),
    /// The transactions to estimate.
    Transactions(Vec<Transaction>),
    /// Whether `SKIP_VALIDATE` is set.
    SkipValidate(bool),
    /// Whether `INCLUDE_PROOF_FACTS` is set.
    IncludeProofFacts(bool),
}

/// The parameters of one call, in the order of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params(Vec<(&'static str, Argument)>);

impl Params {
    /// Parses the parameters of `method`, by position or by name.
    ///
    /// # Errors
    /// Returns the first parameter that is missing, unknown or malformed.
    pub fn parse(method: Method, params: Option<Json<'_>>) -> Result<Self, ParamError> {
        let declared = declared(method);
        let values = match params {
            None => [const { None }; 3],
            Some(Json::Array(items)) => by_position(declared, items)?,
            Some(object) => by_name(declared, object)?,
        };
        let mut params = Vec::with_capacity(declared.len());
        for (declared, value) in declared.iter().zip(values) {
            match value {
                Some(value) => params.push((declared.name, argument(declared, value)?)),
                None if declared.optional => {}
                None => return Err(Missing(declared.name)),
            }
        }
        Ok(Self(params))
    }

    /// The message to a client whose parameters of `method` are refused.
    pub(crate) fn refusal(method: Method, error: ParamError) -> String {
        let names: Vec<_> = declared(method)
            .iter()
            .map(|declared| declared.name)
            .collect();
        let (method, count) = (method.name(), names.len());
        match (error, count) {
            (TooMany(given), 0) => format!("{method} takes no parameters; {given} given"),
            (TooMany(given), _) => format!("{method} takes {count} parameters; {given} given"),
            (Unknown, 0) => format!("{method} takes no parameters"),
            (Unknown, _) => format!("{method} takes no parameters but {}", names.join(", ")),
            _ => error.to_string(),
        }
    }

    /// The arguments with their names, in the order of the API.
    pub fn arguments(&self) -> &[(&'static str, Argument)] {
        &self.0
    }

    /// The block that the parameters name, if the method takes one.
    pub fn block(&self) -> Option<BlockId> {
        self.0.iter().find_map(|(_, argument)| match argument {
            Argument::Block(block) => Some(*block),
            _ => None,
        })
    }

    /// This read at another block, if the method takes one.
    pub(crate) fn at(&self, block: BlockId) -> Self {
        let mut params = self.clone();
        for (_, argument) in &mut params.0 {
            if let Argument::Block(at) = argument {
                *at = block;
            }
        }
        params
    }

    /// Appends the parameters as a JSON object in canonical form: equal parameters, equal bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (name, argument)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            argument.write(out);
        }
        out.push(b'}');
    }
}

fn by_position<'a>(
    declared: &[Declared],
    items: Vec<Json<'a>>,
) -> Result<[Option<Json<'a>>; 3], ParamError> {
    if items.len() > declared.len() {
        return Err(TooMany(items.len()));
    }
    let mut items = items.into_iter();
    Ok([items.next(), items.next(), items.next()])
}

fn by_name<'a>(
    declared: &[Declared],
    object: Json<'a>,
) -> Result<[Option<Json<'a>>; 3], ParamError> {
    let name = |at: usize| declared.get(at).map_or("", |declared| declared.name);
    let names = [name(0), name(1), name(2)];
    let values = object.members(&names).map_err(|error| match error {
        MemberError::Duplicate(name) if !name.is_empty() => Duplicate(name),
        _ => Unknown,
    })?;
    // an unused place has the name ""
    let unknown = values
        .iter()
        .zip(names)
        .any(|(value, name)| value.is_some() && name.is_empty());
    if unknown { Err(Unknown) } else { Ok(values) }
}

fn argument(declared: &Declared, value: Json<'_>) -> Result<Argument, ParamError> {
    let name = declared.name;
    match declared.kind {
        Kind::Block if value.as_str() == Some(FORMER_TAG) => Err(FormerTag(name, BLOCK_FORM)),
        Kind::Block => block(value)
            .map(Argument::Block)
            .ok_or(Malformed(name, BLOCK_FORM)),
        Kind::Felt => felt(&value)
            .map(Argument::Felt)
            .ok_or(Malformed(name, FELT)),
        Kind::Call => call(name, value).map(Argument::Call),
        Kind::Transactions => transactions(name, value).map(Argument::Transactions),
        Kind::SimulationFlags => flag(&value, "SKIP_VALIDATE")
            .map(Argument::SkipValidate)
            .ok_or(Malformed(
                name,
                "an array that is empty or holds SKIP_VALIDATE",
            )),
        Kind::ResponseFlags => flag(&value, "INCLUDE_PROOF_FACTS")
            .map(Argument::IncludeProofFacts)
            .ok_or(Malformed(
                name,
                "an array that is empty or holds INCLUDE_PROOF_FACTS",
            )),
    }
}

fn block(value: Json<'_>) -> Option<BlockId> {
    match value.as_str() {
        Some("latest") => return Some(BlockId::Latest),
        Some("pre_confirmed") => return Some(BlockId::PreConfirmed),
        Some("l1_accepted") => return Some(BlockId::L1Accepted),
        Some(_) => return None,
        None => {}
    }
    match value.members(&["block_hash", "block_number"]).ok()? {
        [Some(hash), None] => felt(&hash).map(BlockId::Hash),
        [None, Some(Json::Integer(number))] => Some(BlockId::Number(number)),
        _ => None,
    }
}

fn call(name: &'static str, value: Json<'_>) -> Result<FunctionCall, ParamError> {
    let members = value.members(&["contract_address", "entry_point_selector", "calldata"]);
    let Ok([Some(contract), Some(selector), Some(calldata)]) = members else {
        let shape = "an object of contract_address, entry_point_selector and calldata";
        return Err(Malformed(name, shape));
    };
    Ok(FunctionCall {
        contract_address: felt(&contract).ok_or(Malformed("contract_address", FELT))?,
        entry_point_selector: felt(&selector).ok_or(Malformed("entry_point_selector", FELT))?,
        calldata: felts(&calldata).ok_or_else(|| no_felts("calldata", &calldata))?,
    })
}

/// The error for a value that is not a list of felts.
fn no_felts(name: &'static str, value: &Json<'_>) -> ParamError {
    let Json::Array(items) = value else {
        return Malformed(name, "an array of felts");
    };
    let at = items
        .iter()
        .position(|item| felt(item).is_none())
        .unwrap_or_default();
    MalformedItem(name, at, FELT)
}

/// Whether an array holds this flag; `None` unless it is empty or holds just the flag.
fn flag(value: &Json<'_>, name: &str) -> Option<bool> {
    match value {
        Json::Array(items) => match items.as_slice() {
            [] => Some(false),
            [only] => (only.as_str() == Some(name)).then_some(true),
            _ => None,
        },
        _ => None,
    }
}

fn transactions(name: &'static str, value: Json<'_>) -> Result<Vec<Transaction>, ParamError> {
    match value {
        Json::Array(items) if (1..=MAX_TRANSACTIONS).contains(&items.len()) => {
            let parsed = items.into_iter().map(Transaction::parse);
            parsed.map(|one| one.map_err(ParamError::from)).collect()
        }
        _ => Err(Malformed(name, "an array of 1 to 4 V3 transactions")),
    }
}

impl Argument {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Block(block) => block.write(out),
            Self::Felt(felt) => write_felt(felt, out),
            Self::Call(call) => {
                out.extend_from_slice(br#"{"contract_address":"#);
                write_felt(&call.contract_address, out);
                out.extend_from_slice(br#","entry_point_selector":"#);
                write_felt(&call.entry_point_selector, out);
                out.extend_from_slice(br#","calldata":"#);
                write_felts(&call.calldata, out);
                out.push(b'}');
            }
            Self::Transactions(transactions) => {
                write_list(transactions, out, Transaction::write);
            }
            Self::SkipValidate(true) => out.extend_from_slice(br#"["SKIP_VALIDATE"]"#),
            Self::IncludeProofFacts(true) => out.extend_from_slice(br#"["INCLUDE_PROOF_FACTS"]"#),
            Self::SkipValidate(false) | Self::IncludeProofFacts(false) => {
                out.extend_from_slice(b"[]");
            }
        }
    }
}

impl BlockId {
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Hash(hash) => {
                out.extend_from_slice(br#"{"block_hash":"#);
                write_felt(&hash, out);
                out.push(b'}');
            }
            Self::Number(number) => {
                out.extend_from_slice(br#"{"block_number":"#);
                write_integer(number, out);
                out.push(b'}');
            }
            Self::Latest => out.extend_from_slice(br#""latest""#),
            Self::PreConfirmed => out.extend_from_slice(br#""pre_confirmed""#),
            Self::L1Accepted => out.extend_from_slice(br#""l1_accepted""#),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Method::{Call, ChainId};
    use super::*;

    #[test]
    fn a_method_has_one_exact_name() {
        assert_eq!(Method::ALL.len(), 13, "the thirteen reads");
        for (at, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, at, "{method:?} is out of order");
            assert_eq!(Method::parse(method.name()), Some(method));
        }
        for name in [
            "",
            "starknet_Call",
            "starknet_call ",
            " starknet_call",
            "starknet_call\0",
            "STARKNET_CALL",
            "call",
            "starknet_addInvokeTransaction",
            "starknet_addDeployAccountTransaction",
            "starknet_addDeclareTransaction",
            "starknet_getBlockWithTxs",
            "devnet_mint",
            "devnet_call",
        ] {
            assert_eq!(Method::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_set_holds_its_methods_only() {
        let set = MethodSet::new(&[ChainId, Call]);
        for method in Method::ALL {
            assert_eq!(
                set.contains(method),
                matches!(method, ChainId | Call),
                "{method:?}"
            );
        }
    }
}
