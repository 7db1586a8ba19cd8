// Usership: how much an account used in an epoch, with a pointer to the evidence.
//
// The submitter writes, once per account and epoch, for accounts that the registry knows.
// Everyone may read.

use starknet::ContractAddress;

#[starknet::interface]
trait IRegistryView<T> {
    fn identity_of(self: @T, account: ContractAddress) -> felt252;
}

#[starknet::interface]
trait IUsership<T> {
    fn submitter(self: @T) -> ContractAddress;
    fn registry(self: @T) -> ContractAddress;
    fn usership_of(self: @T, account: ContractAddress, epoch: u64) -> (u128, felt252);
    fn submit_usership(
        ref self: T, account: ContractAddress, epoch: u64, units: u128, evidence: felt252
    );
}

#[starknet::contract]
mod Usership {
    use starknet::storage::{
        Map, StorageMapReadAccess, StorageMapWriteAccess, StoragePointerReadAccess,
        StoragePointerWriteAccess,
    };
    use starknet::{ContractAddress, get_caller_address};
    use super::{IRegistryViewDispatcher, IRegistryViewDispatcherTrait};

    #[storage]
    struct Storage {
        submitter: ContractAddress,
        registry: ContractAddress,
        // Units are never 0, so 0 units mean that nothing was submitted.
        units: Map<(ContractAddress, u64), u128>,
        evidence: Map<(ContractAddress, u64), felt252>,
    }

    #[event]
    #[derive(Drop, starknet::Event)]
    enum Event {
        Submitted: Submitted,
    }
    #[derive(Drop, starknet::Event)]
    struct Submitted {
        #[key]
        account: ContractAddress,
        #[key]
        epoch: u64,
        units: u128,
        evidence: felt252,
    }

    #[constructor]
    fn constructor(ref self: ContractState, submitter: ContractAddress, registry: ContractAddress) {
        self.submitter.write(submitter);
        self.registry.write(registry);
    }

    #[abi(embed_v0)]
    impl UsershipImpl of super::IUsership<ContractState> {
        fn submitter(self: @ContractState) -> ContractAddress {
            self.submitter.read()
        }
        fn registry(self: @ContractState) -> ContractAddress {
            self.registry.read()
        }
        fn usership_of(
            self: @ContractState, account: ContractAddress, epoch: u64
        ) -> (u128, felt252) {
            (self.units.read((account, epoch)), self.evidence.read((account, epoch)))
        }

        fn submit_usership(
            ref self: ContractState,
            account: ContractAddress,
            epoch: u64,
            units: u128,
            evidence: felt252,
        ) {
            assert(get_caller_address() == self.submitter.read(), 'NOT_SUBMITTER');
            assert(units != 0, 'UNITS_ZERO');
            assert(self.units.read((account, epoch)) == 0, 'ALREADY_SUBMITTED');
            let registry = IRegistryViewDispatcher { contract_address: self.registry.read() };
            assert(registry.identity_of(account) != 0, 'UNKNOWN_ACCOUNT');
            self.units.write((account, epoch), units);
            self.evidence.write((account, epoch), evidence);
            self.emit(Submitted { account, epoch, units, evidence });
        }
    }
}
