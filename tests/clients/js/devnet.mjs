// What every starknet-devnet holds, and its seeded accounts: constants only.

export const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
/** OpenZeppelin account 1.0.0, declared on every starknet-devnet. */
export const ACCOUNT_CLASS = '0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564';
/** The selector of `balanceOf`. */
export const BALANCE_OF = '0x35a73cd311a05d46deda634c5ee045db92f811b4e74bca4437fcb5302b7af33';
/** The first account of `--seed 0`; its key is public knowledge. */
export const SEEDED = {
  address: '0x64b48806902a367c8598f4f95c305e8c1a1acba5f082d294a43793113115691',
  key: '0x71d7bb07b9a64f6f78ac4c816aff4da9',
};
/** Resource bounds of a transaction that is only estimated. */
const QUERY_VERSION_3 = '0x100000000000000000000000000000003';
const NOTHING = { max_amount: '0x0', max_price_per_unit: '0x0' };

/** An unsigned call by the seeded account, as a wallet sends it for a fee estimate. */
export const UNSIGNED = {
  type: 'INVOKE',
  sender_address: SEEDED.address,
  calldata: ['0x1', STRK, BALANCE_OF, '0x1', SEEDED.address],
  version: QUERY_VERSION_3,
  signature: [],
  nonce: '0x0',
  resource_bounds: { l2_gas: NOTHING, l1_gas: NOTHING, l1_data_gas: NOTHING },
  tip: '0x0',
  paymaster_data: [],
  account_deployment_data: [],
  nonce_data_availability_mode: 'L1',
  fee_data_availability_mode: 'L1',
};
