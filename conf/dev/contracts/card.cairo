// The card: a token that only verified accounts are given, each id once for ever.
//
// The minter mints. A card's owner transfers and burns it. The bridge, and nothing else, takes
// cards into its own custody. The owner names the minter, and the bridge once. Everyone may read.

use starknet::ContractAddress;

#[starknet::interface]
trait IRegistryView<T> {
    fn is_verified(self: @T, account: ContractAddress) -> bool;
}

#[starknet::interface]
trait ICard<T> {
    fn owner(self: @T) -> ContractAddress;
    fn minter(self: @T) -> ContractAddress;
    fn registry(self: @T) -> ContractAddress;
    fn bridge(self: @T) -> ContractAddress;
    fn total_supply(self: @T) -> u256;
    fn owner_of(self: @T, token_id: u256) -> ContractAddress;
    fn balance_of(self: @T, account: ContractAddress) -> u256;
    fn minted_to(self: @T, token_id: u256) -> ContractAddress;
    fn set_bridge(ref self: T, bridge: ContractAddress);
    fn set_minter(ref self: T, minter: ContractAddress);
    fn mint(ref self: T, to: ContractAddress, token_id: u256);
    fn transfer(ref self: T, to: ContractAddress, token_id: u256);
    fn burn(ref self: T, token_id: u256);
    fn escrow(ref self: T, from: ContractAddress, token_id: u256);
}

#[starknet::contract]
mod Card {
    use starknet::storage::{
        Map, StorageMapReadAccess, StorageMapWriteAccess, StoragePointerReadAccess,
        StoragePointerWriteAccess,
    };
    use starknet::{ContractAddress, contract_address_const, get_caller_address};
    use super::{IRegistryViewDispatcher, IRegistryViewDispatcherTrait};

    #[storage]
    struct Storage {
        owner: ContractAddress,
        minter: ContractAddress,
        registry: ContractAddress,
        bridge: ContractAddress,
        supply: u256,
        owners: Map<u256, ContractAddress>,
        balances: Map<ContractAddress, u256>,
        // Never cleared: what makes an id unusable a second time, also after a burn.
        minted_to: Map<u256, ContractAddress>,
    }

    #[event]
    #[derive(Drop, starknet::Event)]
    enum Event {
        Transfer: Transfer,
        BridgeSet: BridgeSet,
        MinterSet: MinterSet,
    }
    // A mint comes from zero, a burn goes to zero, an escrow goes to the bridge.
    #[derive(Drop, starknet::Event)]
    struct Transfer {
        #[key]
        from: ContractAddress,
        #[key]
        to: ContractAddress,
        #[key]
        token_id: u256,
    }
    #[derive(Drop, starknet::Event)]
    struct BridgeSet {
        #[key]
        bridge: ContractAddress,
    }
    #[derive(Drop, starknet::Event)]
    struct MinterSet {
        #[key]
        minter: ContractAddress,
    }

    #[constructor]
    fn constructor(
        ref self: ContractState,
        owner: ContractAddress,
        minter: ContractAddress,
        registry: ContractAddress,
    ) {
        self.owner.write(owner);
        self.minter.write(minter);
        self.registry.write(registry);
    }

    #[generate_trait]
    impl Internal of InternalTrait {
        fn only_owner(self: @ContractState) {
            assert(get_caller_address() == self.owner.read(), 'NOT_OWNER');
        }
        // Takes a card out of the hands of `from`, who must hold it: a card without an owner
        // belongs to nobody, not to the zero address.
        fn release(ref self: ContractState, from: ContractAddress, token_id: u256) {
            let holder = self.owners.read(token_id);
            assert(holder == from && holder != contract_address_const::<0>(), 'NOT_CARD_OWNER');
            self.balances.write(from, self.balances.read(from) - 1);
        }
        fn give(ref self: ContractState, from: ContractAddress, to: ContractAddress, token_id: u256) {
            self.owners.write(token_id, to);
            self.balances.write(to, self.balances.read(to) + 1);
            self.emit(Transfer { from, to, token_id });
        }
    }

    #[abi(embed_v0)]
    impl CardImpl of super::ICard<ContractState> {
        fn owner(self: @ContractState) -> ContractAddress {
            self.owner.read()
        }
        fn minter(self: @ContractState) -> ContractAddress {
            self.minter.read()
        }
        fn registry(self: @ContractState) -> ContractAddress {
            self.registry.read()
        }
        fn bridge(self: @ContractState) -> ContractAddress {
            self.bridge.read()
        }
        fn total_supply(self: @ContractState) -> u256 {
            self.supply.read()
        }
        fn owner_of(self: @ContractState, token_id: u256) -> ContractAddress {
            self.owners.read(token_id)
        }
        fn balance_of(self: @ContractState, account: ContractAddress) -> u256 {
            self.balances.read(account)
        }
        fn minted_to(self: @ContractState, token_id: u256) -> ContractAddress {
            self.minted_to.read(token_id)
        }

        fn set_bridge(ref self: ContractState, bridge: ContractAddress) {
            self.only_owner();
            let zero = contract_address_const::<0>();
            assert(self.bridge.read() == zero, 'BRIDGE_ALREADY_SET');
            assert(bridge != zero, 'BRIDGE_ZERO');
            self.bridge.write(bridge);
            self.emit(BridgeSet { bridge });
        }
        fn set_minter(ref self: ContractState, minter: ContractAddress) {
            self.only_owner();
            assert(minter != contract_address_const::<0>(), 'MINTER_ZERO');
            self.minter.write(minter);
            self.emit(MinterSet { minter });
        }

        fn mint(ref self: ContractState, to: ContractAddress, token_id: u256) {
            assert(get_caller_address() == self.minter.read(), 'NOT_MINTER');
            let zero = contract_address_const::<0>();
            assert(to != zero, 'TO_ZERO');
            assert(self.minted_to.read(token_id) == zero, 'ALREADY_MINTED');
            let registry = IRegistryViewDispatcher { contract_address: self.registry.read() };
            assert(registry.is_verified(to), 'NOT_VERIFIED');
            self.minted_to.write(token_id, to);
            self.supply.write(self.supply.read() + 1);
            self.give(zero, to, token_id);
        }

        // Not to the bridge: a card that arrived there this way would have no depositor.
        fn transfer(ref self: ContractState, to: ContractAddress, token_id: u256) {
            assert(to != contract_address_const::<0>(), 'TO_ZERO');
            assert(to != self.bridge.read(), 'USE_BRIDGE');
            let from = get_caller_address();
            self.release(from, token_id);
            self.give(from, to, token_id);
        }
        fn burn(ref self: ContractState, token_id: u256) {
            let from = get_caller_address();
            let zero = contract_address_const::<0>();
            self.release(from, token_id);
            self.owners.write(token_id, zero);
            self.supply.write(self.supply.read() - 1);
            self.emit(Transfer { from, to: zero, token_id });
        }

        // `from` is the bridge's word for who asked it.
        fn escrow(ref self: ContractState, from: ContractAddress, token_id: u256) {
            let bridge = self.bridge.read();
            assert(get_caller_address() == bridge, 'NOT_BRIDGE');
            self.release(from, token_id);
            self.give(from, bridge, token_id);
        }
    }
}
