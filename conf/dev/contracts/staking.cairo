// Staking: validators stake tokens of their own, others delegate to them.
//
// Everyone may become a validator, delegate, and take tokens back after the unbonding delay.
// The owner slashes a validator's own stake; slashed tokens stay in this contract. Everyone may
// read. Each call writes its effects before it moves tokens, so that a token that calls back
// finds nothing left to take.

use starknet::ContractAddress;

#[starknet::interface]
trait IErc20<T> {
    fn transfer_from(
        ref self: T, sender: ContractAddress, recipient: ContractAddress, amount: u256
    ) -> bool;
    fn transfer(ref self: T, recipient: ContractAddress, amount: u256) -> bool;
}

#[starknet::interface]
trait IStaking<T> {
    fn owner(self: @T) -> ContractAddress;
    fn token(self: @T) -> ContractAddress;
    fn registry(self: @T) -> ContractAddress;
    fn unbonding_delay(self: @T) -> u64;
    fn self_stake_of(self: @T, validator: ContractAddress) -> u256;
    fn delegation_of(self: @T, delegator: ContractAddress, validator: ContractAddress) -> u256;
    fn is_validator(self: @T, validator: ContractAddress) -> bool;
    fn commission_of(self: @T, validator: ContractAddress) -> u16;
    fn pending_of(self: @T, who: ContractAddress) -> (u256, u64);
    fn register_validator(ref self: T, commission_bps: u16, self_stake: u256);
    fn increase_self_stake(ref self: T, amount: u256);
    fn delegate(ref self: T, validator: ContractAddress, amount: u256);
    fn request_undelegate(ref self: T, validator: ContractAddress, amount: u256);
    fn withdraw(ref self: T);
    fn exit_validator(ref self: T);
    fn slash(ref self: T, validator: ContractAddress, amount: u256);
}

#[starknet::contract]
mod Staking {
    use starknet::storage::{
        Map, StorageMapReadAccess, StorageMapWriteAccess, StoragePointerReadAccess,
        StoragePointerWriteAccess,
    };
    use starknet::{ContractAddress, get_block_timestamp, get_caller_address, get_contract_address};
    use super::{IErc20Dispatcher, IErc20DispatcherTrait};

    #[storage]
    struct Storage {
        owner: ContractAddress,
        token: ContractAddress,
        registry: ContractAddress,
        unbonding_delay: u64,
        validators: Map<ContractAddress, bool>,
        commissions: Map<ContractAddress, u16>,
        self_stakes: Map<ContractAddress, u256>,
        // By (delegator, validator).
        delegations: Map<(ContractAddress, ContractAddress), u256>,
        pending: Map<ContractAddress, u256>,
        ready_at: Map<ContractAddress, u64>,
    }

    #[event]
    #[derive(Drop, starknet::Event)]
    enum Event {
        ValidatorRegistered: ValidatorRegistered,
        SelfStakeIncreased: SelfStakeIncreased,
        Delegated: Delegated,
        UndelegateRequested: UndelegateRequested,
        Withdrawn: Withdrawn,
        ValidatorExited: ValidatorExited,
        Slashed: Slashed,
    }
    #[derive(Drop, starknet::Event)]
    struct ValidatorRegistered {
        #[key]
        validator: ContractAddress,
        commission_bps: u16,
        self_stake: u256,
    }
    #[derive(Drop, starknet::Event)]
    struct SelfStakeIncreased {
        #[key]
        validator: ContractAddress,
        amount: u256,
    }
    #[derive(Drop, starknet::Event)]
    struct Delegated {
        #[key]
        delegator: ContractAddress,
        #[key]
        validator: ContractAddress,
        amount: u256,
    }
    #[derive(Drop, starknet::Event)]
    struct UndelegateRequested {
        #[key]
        delegator: ContractAddress,
        #[key]
        validator: ContractAddress,
        amount: u256,
        ready_at: u64,
    }
    #[derive(Drop, starknet::Event)]
    struct Withdrawn {
        #[key]
        who: ContractAddress,
        amount: u256,
    }
    #[derive(Drop, starknet::Event)]
    struct ValidatorExited {
        #[key]
        validator: ContractAddress,
        amount: u256,
        ready_at: u64,
    }
    #[derive(Drop, starknet::Event)]
    struct Slashed {
        #[key]
        validator: ContractAddress,
        amount: u256,
    }

    #[constructor]
    fn constructor(
        ref self: ContractState,
        owner: ContractAddress,
        token: ContractAddress,
        registry: ContractAddress,
        unbonding_delay: u64,
    ) {
        self.owner.write(owner);
        self.token.write(token);
        self.registry.write(registry);
        self.unbonding_delay.write(unbonding_delay);
    }

    #[generate_trait]
    impl Internal of InternalTrait {
        fn pull(ref self: ContractState, from: ContractAddress, amount: u256) {
            let token = IErc20Dispatcher { contract_address: self.token.read() };
            assert(token.transfer_from(from, get_contract_address(), amount), 'PULL_FAILED');
        }
        // One sum and one date per account: asking for more also puts off what is pending.
        fn queue(ref self: ContractState, who: ContractAddress, amount: u256) -> u64 {
            let ready_at = get_block_timestamp() + self.unbonding_delay.read();
            self.pending.write(who, self.pending.read(who) + amount);
            self.ready_at.write(who, ready_at);
            ready_at
        }
    }

    #[abi(embed_v0)]
    impl StakingImpl of super::IStaking<ContractState> {
        fn owner(self: @ContractState) -> ContractAddress {
            self.owner.read()
        }
        fn token(self: @ContractState) -> ContractAddress {
            self.token.read()
        }
        fn registry(self: @ContractState) -> ContractAddress {
            self.registry.read()
        }
        fn unbonding_delay(self: @ContractState) -> u64 {
            self.unbonding_delay.read()
        }
        fn self_stake_of(self: @ContractState, validator: ContractAddress) -> u256 {
            self.self_stakes.read(validator)
        }
        fn delegation_of(
            self: @ContractState, delegator: ContractAddress, validator: ContractAddress
        ) -> u256 {
            self.delegations.read((delegator, validator))
        }
        fn is_validator(self: @ContractState, validator: ContractAddress) -> bool {
            self.validators.read(validator)
        }
        fn commission_of(self: @ContractState, validator: ContractAddress) -> u16 {
            self.commissions.read(validator)
        }
        fn pending_of(self: @ContractState, who: ContractAddress) -> (u256, u64) {
            (self.pending.read(who), self.ready_at.read(who))
        }

        fn register_validator(ref self: ContractState, commission_bps: u16, self_stake: u256) {
            let me = get_caller_address();
            assert(!self.validators.read(me), 'ALREADY_VALIDATOR');
            assert(commission_bps <= 10000, 'BAD_COMMISSION');
            assert(self_stake != 0, 'AMOUNT_ZERO');
            self.validators.write(me, true);
            self.commissions.write(me, commission_bps);
            self.self_stakes.write(me, self_stake);
            self.emit(ValidatorRegistered { validator: me, commission_bps, self_stake });
            self.pull(me, self_stake);
        }
        fn increase_self_stake(ref self: ContractState, amount: u256) {
            let me = get_caller_address();
            assert(amount != 0, 'AMOUNT_ZERO');
            assert(self.validators.read(me), 'NOT_VALIDATOR');
            self.self_stakes.write(me, self.self_stakes.read(me) + amount);
            self.emit(SelfStakeIncreased { validator: me, amount });
            self.pull(me, amount);
        }
        // What is left of the own stake waits for withdraw(). Delegators are not moved: they ask
        // for theirs themselves, also later.
        fn exit_validator(ref self: ContractState) {
            let me = get_caller_address();
            assert(self.validators.read(me), 'NOT_VALIDATOR');
            let amount = self.self_stakes.read(me);
            self.validators.write(me, false);
            self.commissions.write(me, 0);
            self.self_stakes.write(me, 0);
            let ready_at = self.queue(me, amount);
            self.emit(ValidatorExited { validator: me, amount, ready_at });
        }

        fn delegate(ref self: ContractState, validator: ContractAddress, amount: u256) {
            let me = get_caller_address();
            assert(amount != 0, 'AMOUNT_ZERO');
            assert(self.validators.read(validator), 'NOT_VALIDATOR');
            let delegated = self.delegations.read((me, validator));
            self.delegations.write((me, validator), delegated + amount);
            self.emit(Delegated { delegator: me, validator, amount });
            self.pull(me, amount);
        }
        fn request_undelegate(ref self: ContractState, validator: ContractAddress, amount: u256) {
            let me = get_caller_address();
            assert(amount != 0, 'AMOUNT_ZERO');
            let delegated = self.delegations.read((me, validator));
            assert(delegated >= amount, 'INSUFFICIENT');
            self.delegations.write((me, validator), delegated - amount);
            let ready_at = self.queue(me, amount);
            self.emit(UndelegateRequested { delegator: me, validator, amount, ready_at });
        }
        fn withdraw(ref self: ContractState) {
            let me = get_caller_address();
            let amount = self.pending.read(me);
            assert(amount != 0, 'NOTHING_PENDING');
            assert(get_block_timestamp() >= self.ready_at.read(me), 'TOO_EARLY');
            self.pending.write(me, 0);
            self.ready_at.write(me, 0);
            self.emit(Withdrawn { who: me, amount });
            let token = IErc20Dispatcher { contract_address: self.token.read() };
            assert(token.transfer(me, amount), 'PUSH_FAILED');
        }

        fn slash(ref self: ContractState, validator: ContractAddress, amount: u256) {
            assert(get_caller_address() == self.owner.read(), 'NOT_OWNER');
            assert(amount != 0, 'AMOUNT_ZERO');
            let staked = self.self_stakes.read(validator);
            assert(staked >= amount, 'INSUFFICIENT');
            self.self_stakes.write(validator, staked - amount);
            self.emit(Slashed { validator, amount });
        }
    }
}
