// The bridge: takes tokens and cards into custody and tells L1 who is to receive them there.
//
// Everyone may bridge out what is theirs; this side never gives anything back. The owner has no
// power here, it only says whose bridge this is. Everyone may read. Each call writes its effects
// before it calls another contract.

use starknet::{ContractAddress, EthAddress};

#[starknet::interface]
trait IErc20<T> {
    fn transfer_from(
        ref self: T, sender: ContractAddress, recipient: ContractAddress, amount: u256
    ) -> bool;
}

#[starknet::interface]
trait ICardEscrow<T> {
    fn escrow(ref self: T, from: ContractAddress, token_id: u256);
}

#[starknet::interface]
trait IBridge<T> {
    fn owner(self: @T) -> ContractAddress;
    fn token(self: @T) -> ContractAddress;
    fn card(self: @T) -> ContractAddress;
    fn l1_bridge(self: @T) -> EthAddress;
    fn deposited_by(self: @T, account: ContractAddress) -> u256;
    fn depositor_of(self: @T, token_id: u256) -> ContractAddress;
    fn bridge_out_token(ref self: T, l1_recipient: EthAddress, amount: u256);
    fn bridge_out_card(ref self: T, l1_recipient: EthAddress, token_id: u256);
}

#[starknet::contract]
mod Bridge {
    use starknet::storage::{
        Map, StorageMapReadAccess, StorageMapWriteAccess, StoragePointerReadAccess,
        StoragePointerWriteAccess,
    };
    use starknet::syscalls::send_message_to_l1_syscall;
    use starknet::{
        ContractAddress, EthAddress, SyscallResultTrait, get_caller_address, get_contract_address,
    };
    use super::{
        ICardEscrowDispatcher, ICardEscrowDispatcherTrait, IErc20Dispatcher, IErc20DispatcherTrait,
    };

    // The first felt of a message: what is bridged.
    const TOKEN: felt252 = 1;
    const CARD: felt252 = 2;

    #[storage]
    struct Storage {
        owner: ContractAddress,
        token: ContractAddress,
        card: ContractAddress,
        l1_bridge: EthAddress,
        // All that the account ever bridged out.
        deposits: Map<ContractAddress, u256>,
        depositors: Map<u256, ContractAddress>,
    }

    #[event]
    #[derive(Drop, starknet::Event)]
    enum Event {
        TokenBridged: TokenBridged,
        CardBridged: CardBridged,
    }
    #[derive(Drop, starknet::Event)]
    struct TokenBridged {
        #[key]
        depositor: ContractAddress,
        l1_recipient: EthAddress,
        amount: u256,
    }
    #[derive(Drop, starknet::Event)]
    struct CardBridged {
        #[key]
        depositor: ContractAddress,
        #[key]
        token_id: u256,
        l1_recipient: EthAddress,
    }

    #[constructor]
    fn constructor(
        ref self: ContractState,
        owner: ContractAddress,
        token: ContractAddress,
        card: ContractAddress,
        l1_bridge: EthAddress,
    ) {
        self.owner.write(owner);
        self.token.write(token);
        self.card.write(card);
        self.l1_bridge.write(l1_bridge);
    }

    #[generate_trait]
    impl Internal of InternalTrait {
        fn send(ref self: ContractState, payload: Span<felt252>) {
            send_message_to_l1_syscall(self.l1_bridge.read().into(), payload).unwrap_syscall();
        }
    }

    #[abi(embed_v0)]
    impl BridgeImpl of super::IBridge<ContractState> {
        fn owner(self: @ContractState) -> ContractAddress {
            self.owner.read()
        }
        fn token(self: @ContractState) -> ContractAddress {
            self.token.read()
        }
        fn card(self: @ContractState) -> ContractAddress {
            self.card.read()
        }
        fn l1_bridge(self: @ContractState) -> EthAddress {
            self.l1_bridge.read()
        }
        fn deposited_by(self: @ContractState, account: ContractAddress) -> u256 {
            self.deposits.read(account)
        }
        fn depositor_of(self: @ContractState, token_id: u256) -> ContractAddress {
            self.depositors.read(token_id)
        }

        fn bridge_out_token(ref self: ContractState, l1_recipient: EthAddress, amount: u256) {
            let me = get_caller_address();
            let recipient: felt252 = l1_recipient.into();
            assert(recipient != 0, 'RECIPIENT_ZERO');
            assert(amount != 0, 'AMOUNT_ZERO');
            self.deposits.write(me, self.deposits.read(me) + amount);
            self.emit(TokenBridged { depositor: me, l1_recipient, amount });
            let token = IErc20Dispatcher { contract_address: self.token.read() };
            assert(token.transfer_from(me, get_contract_address(), amount), 'PULL_FAILED');
            let payload = array![TOKEN, recipient, amount.low.into(), amount.high.into()];
            self.send(payload.span());
        }
        // The card contract refuses when the caller does not own the card.
        fn bridge_out_card(ref self: ContractState, l1_recipient: EthAddress, token_id: u256) {
            let me = get_caller_address();
            let recipient: felt252 = l1_recipient.into();
            assert(recipient != 0, 'RECIPIENT_ZERO');
            self.depositors.write(token_id, me);
            self.emit(CardBridged { depositor: me, token_id, l1_recipient });
            ICardEscrowDispatcher { contract_address: self.card.read() }.escrow(me, token_id);
            let payload = array![
                CARD, recipient, token_id.low.into(), token_id.high.into(), me.into(),
            ];
            self.send(payload.span());
        }
    }
}
