// The registry: which account stands for which identity, and what the verifier attests of it.
//
// The owner binds identities to accounts, moves a binding after a delay (recovery), wires the
// other contracts once and switches V1 attestations off for good. The verifier attests and
// revokes. Neither may do the other's work, so the two must differ. Everyone may read.

use starknet::ContractAddress;

// Its account is zero exactly when there is no such attestation.
#[derive(Drop, Serde, Copy, starknet::Store)]
struct Attestation {
    account: ContractAddress,
    assurance_type: felt252,
    assurance_level: u8,
    issued_at: u64,
    expires_at: u64,
    revoked: bool,
}

// Its new_account is zero exactly when no recovery is pending.
#[derive(Drop, Serde, Copy, starknet::Store)]
struct Recovery {
    new_account: ContractAddress,
    ready_at: u64,
}

#[starknet::interface]
trait IRegistry<T> {
    fn owner(self: @T) -> ContractAddress;
    fn verifier(self: @T) -> ContractAddress;
    fn is_authorised_verifier(self: @T, who: ContractAddress) -> bool;
    fn account_class_hash(self: @T) -> felt252;
    fn verification_v2_required(self: @T) -> bool;
    fn recovery_delay(self: @T) -> u64;
    fn wiring(
        self: @T
    ) -> (ContractAddress, ContractAddress, ContractAddress, ContractAddress);
    fn account_of(self: @T, identity: felt252) -> ContractAddress;
    fn identity_of(self: @T, account: ContractAddress) -> felt252;
    fn attestation(self: @T, id: felt252) -> Attestation;
    fn attestation_of(self: @T, account: ContractAddress) -> (felt252, Attestation);
    fn is_verified(self: @T, account: ContractAddress) -> bool;
    fn recovery_of(self: @T, identity: felt252) -> Recovery;
    fn wire(
        ref self: T,
        card: ContractAddress,
        staking: ContractAddress,
        usership: ContractAddress,
        bridge: ContractAddress,
    );
    fn register_identity(ref self: T, identity: felt252, account: ContractAddress);
    fn require_v2(ref self: T);
    fn attest_v2(
        ref self: T,
        account: ContractAddress,
        attestation_id: felt252,
        assurance_type: felt252,
        assurance_level: u8,
        expires_at: u64,
    );
    fn attest(ref self: T, account: ContractAddress, expires_at: u64);
    fn revoke(ref self: T, account: ContractAddress, reason: felt252);
    fn recovery_propose(ref self: T, identity: felt252, new_account: ContractAddress);
    fn recovery_execute(ref self: T, identity: felt252);
    fn recovery_cancel(ref self: T, identity: felt252);
}

#[starknet::contract]
mod Registry {
    use starknet::storage::{
        Map, StorageMapReadAccess, StorageMapWriteAccess, StoragePointerReadAccess,
        StoragePointerWriteAccess,
    };
    use starknet::{ContractAddress, contract_address_const, get_block_timestamp, get_caller_address};
    use super::{Attestation, Recovery};

    #[storage]
    struct Storage {
        owner: ContractAddress,
        verifier: ContractAddress,
        account_class_hash: felt252,
        v2_required: bool,
        recovery_delay: u64,
        card: ContractAddress,
        staking: ContractAddress,
        usership: ContractAddress,
        bridge: ContractAddress,
        accounts: Map<felt252, ContractAddress>,
        identities: Map<ContractAddress, felt252>,
        // Every V2 attestation ever written: what makes an id unusable a second time.
        attestations: Map<felt252, Attestation>,
        // The id of the account's current attestation; 0 points to `legacy`.
        current: Map<ContractAddress, felt252>,
        // The account's last V1 attestation: these have no id.
        legacy: Map<ContractAddress, Attestation>,
        recoveries: Map<felt252, Recovery>,
    }

    #[event]
    #[derive(Drop, starknet::Event)]
    enum Event {
        Wired: Wired,
        Registered: Registered,
        V2Required: V2Required,
        AttestedV2: AttestedV2,
        Attested: Attested,
        Revoked: Revoked,
        RecoveryProposed: RecoveryProposed,
        RecoveryExecuted: RecoveryExecuted,
        RecoveryCancelled: RecoveryCancelled,
    }
    #[derive(Drop, starknet::Event)]
    struct Wired {
        card: ContractAddress,
        staking: ContractAddress,
        usership: ContractAddress,
        bridge: ContractAddress,
    }
    #[derive(Drop, starknet::Event)]
    struct Registered {
        #[key]
        identity: felt252,
        #[key]
        account: ContractAddress,
    }
    #[derive(Drop, starknet::Event)]
    struct V2Required {}
    #[derive(Drop, starknet::Event)]
    struct AttestedV2 {
        #[key]
        account: ContractAddress,
        #[key]
        attestation_id: felt252,
        assurance_type: felt252,
        assurance_level: u8,
        expires_at: u64,
    }
    #[derive(Drop, starknet::Event)]
    struct Attested {
        #[key]
        account: ContractAddress,
        expires_at: u64,
    }
    // The attestation_id of a revoked V1 attestation is 0.
    #[derive(Drop, starknet::Event)]
    struct Revoked {
        #[key]
        account: ContractAddress,
        #[key]
        attestation_id: felt252,
        reason: felt252,
    }
    #[derive(Drop, starknet::Event)]
    struct RecoveryProposed {
        #[key]
        identity: felt252,
        new_account: ContractAddress,
        ready_at: u64,
    }
    #[derive(Drop, starknet::Event)]
    struct RecoveryExecuted {
        #[key]
        identity: felt252,
        old_account: ContractAddress,
        new_account: ContractAddress,
    }
    #[derive(Drop, starknet::Event)]
    struct RecoveryCancelled {
        #[key]
        identity: felt252,
    }

    #[constructor]
    fn constructor(
        ref self: ContractState,
        owner: ContractAddress,
        verifier: ContractAddress,
        account_class_hash: felt252,
        recovery_delay: u64,
    ) {
        let zero = contract_address_const::<0>();
        assert(owner != zero, 'OWNER_ZERO');
        assert(verifier != zero, 'VERIFIER_ZERO');
        assert(owner != verifier, 'OWNER_IS_VERIFIER');
        self.owner.write(owner);
        self.verifier.write(verifier);
        self.account_class_hash.write(account_class_hash);
        self.recovery_delay.write(recovery_delay);
    }

    #[generate_trait]
    impl Internal of InternalTrait {
        fn only_owner(self: @ContractState) {
            assert(get_caller_address() == self.owner.read(), 'NOT_OWNER');
        }
        fn only_verifier(self: @ContractState) {
            assert(get_caller_address() == self.verifier.read(), 'NOT_VERIFIER');
        }
        fn current_attestation(
            self: @ContractState, account: ContractAddress
        ) -> (felt252, Attestation) {
            let id = self.current.read(account);
            if id == 0 {
                (id, self.legacy.read(account))
            } else {
                (id, self.attestations.read(id))
            }
        }
        fn mark_revoked(ref self: ContractState, id: felt252, attestation: Attestation, reason: felt252) {
            let account = attestation.account;
            let mut revoked = attestation;
            revoked.revoked = true;
            if id == 0 {
                self.legacy.write(account, revoked);
            } else {
                self.attestations.write(id, revoked);
            }
            self.emit(Revoked { account, attestation_id: id, reason });
        }
        fn clear_recovery(ref self: ContractState, identity: felt252) {
            let none = Recovery { new_account: contract_address_const::<0>(), ready_at: 0 };
            self.recoveries.write(identity, none);
        }
    }

    #[abi(embed_v0)]
    impl RegistryImpl of super::IRegistry<ContractState> {
        fn owner(self: @ContractState) -> ContractAddress {
            self.owner.read()
        }
        fn verifier(self: @ContractState) -> ContractAddress {
            self.verifier.read()
        }
        fn is_authorised_verifier(self: @ContractState, who: ContractAddress) -> bool {
            who == self.verifier.read()
        }
        fn account_class_hash(self: @ContractState) -> felt252 {
            self.account_class_hash.read()
        }
        fn verification_v2_required(self: @ContractState) -> bool {
            self.v2_required.read()
        }
        fn recovery_delay(self: @ContractState) -> u64 {
            self.recovery_delay.read()
        }
        fn wiring(
            self: @ContractState
        ) -> (ContractAddress, ContractAddress, ContractAddress, ContractAddress) {
            (self.card.read(), self.staking.read(), self.usership.read(), self.bridge.read())
        }
        fn account_of(self: @ContractState, identity: felt252) -> ContractAddress {
            self.accounts.read(identity)
        }
        fn identity_of(self: @ContractState, account: ContractAddress) -> felt252 {
            self.identities.read(account)
        }
        fn attestation(self: @ContractState, id: felt252) -> Attestation {
            self.attestations.read(id)
        }
        fn attestation_of(
            self: @ContractState, account: ContractAddress
        ) -> (felt252, Attestation) {
            self.current_attestation(account)
        }
        fn is_verified(self: @ContractState, account: ContractAddress) -> bool {
            if self.identities.read(account) == 0 {
                return false;
            }
            let (id, attestation) = self.current_attestation(account);
            if id == 0 && self.v2_required.read() {
                return false;
            }
            // Without an attestation expires_at is 0, which is always past.
            !attestation.revoked && attestation.expires_at > get_block_timestamp()
        }
        fn recovery_of(self: @ContractState, identity: felt252) -> Recovery {
            self.recoveries.read(identity)
        }

        fn wire(
            ref self: ContractState,
            card: ContractAddress,
            staking: ContractAddress,
            usership: ContractAddress,
            bridge: ContractAddress,
        ) {
            self.only_owner();
            let zero = contract_address_const::<0>();
            assert(self.card.read() == zero, 'ALREADY_WIRED');
            assert(card != zero, 'CARD_ZERO');
            assert(staking != zero, 'STAKING_ZERO');
            assert(usership != zero, 'USERSHIP_ZERO');
            assert(bridge != zero, 'BRIDGE_ZERO');
            self.card.write(card);
            self.staking.write(staking);
            self.usership.write(usership);
            self.bridge.write(bridge);
            self.emit(Wired { card, staking, usership, bridge });
        }
        // The same pair again is no change, so that a retry is safe.
        fn register_identity(ref self: ContractState, identity: felt252, account: ContractAddress) {
            self.only_owner();
            let zero = contract_address_const::<0>();
            assert(identity != 0, 'IDENTITY_ZERO');
            assert(account != zero, 'ACCOUNT_ZERO');
            let bound = self.accounts.read(identity);
            if bound == account {
                return;
            }
            assert(bound == zero, 'IDENTITY_TAKEN');
            assert(self.identities.read(account) == 0, 'ACCOUNT_TAKEN');
            self.accounts.write(identity, account);
            self.identities.write(account, identity);
            self.emit(Registered { identity, account });
        }
        // There is no way back.
        fn require_v2(ref self: ContractState) {
            self.only_owner();
            if self.v2_required.read() {
                return;
            }
            self.v2_required.write(true);
            self.emit(V2Required {});
        }

        // The new attestation becomes the account's current one, whatever the one before was.
        fn attest_v2(
            ref self: ContractState,
            account: ContractAddress,
            attestation_id: felt252,
            assurance_type: felt252,
            assurance_level: u8,
            expires_at: u64,
        ) {
            self.only_verifier();
            assert(attestation_id != 0, 'ATTESTATION_ID_ZERO');
            assert(self.identities.read(account) != 0, 'UNKNOWN_ACCOUNT');
            let known = self.attestations.read(attestation_id);
            assert(known.account == contract_address_const::<0>(), 'ATTESTATION_REPLAYED');
            let issued_at = get_block_timestamp();
            assert(expires_at > issued_at, 'EXPIRED');
            let attestation = Attestation {
                account, assurance_type, assurance_level, issued_at, expires_at, revoked: false
            };
            self.attestations.write(attestation_id, attestation);
            self.current.write(account, attestation_id);
            self.emit(AttestedV2 { account, attestation_id, assurance_type, assurance_level, expires_at });
        }
        // V1: nothing but an expiry.
        fn attest(ref self: ContractState, account: ContractAddress, expires_at: u64) {
            self.only_verifier();
            assert(!self.v2_required.read(), 'V2_ONLY');
            assert(self.identities.read(account) != 0, 'UNKNOWN_ACCOUNT');
            let issued_at = get_block_timestamp();
            assert(expires_at > issued_at, 'EXPIRED');
            let attestation = Attestation {
                account,
                assurance_type: 0,
                assurance_level: 0,
                issued_at,
                expires_at,
                revoked: false
            };
            self.legacy.write(account, attestation);
            self.current.write(account, 0);
            self.emit(Attested { account, expires_at });
        }
        fn revoke(ref self: ContractState, account: ContractAddress, reason: felt252) {
            self.only_verifier();
            let (id, attestation) = self.current_attestation(account);
            assert(attestation.account != contract_address_const::<0>(), 'NOT_ATTESTED');
            assert(!attestation.revoked, 'ALREADY_REVOKED');
            self.mark_revoked(id, attestation, reason);
        }

        fn recovery_propose(ref self: ContractState, identity: felt252, new_account: ContractAddress) {
            self.only_owner();
            let zero = contract_address_const::<0>();
            assert(self.accounts.read(identity) != zero, 'UNKNOWN_IDENTITY');
            assert(new_account != zero, 'ACCOUNT_ZERO');
            assert(self.identities.read(new_account) == 0, 'ACCOUNT_TAKEN');
            assert(self.recoveries.read(identity).new_account == zero, 'RECOVERY_PENDING');
            let ready_at = get_block_timestamp() + self.recovery_delay.read();
            self.recoveries.write(identity, Recovery { new_account, ready_at });
            self.emit(RecoveryProposed { identity, new_account, ready_at });
        }
        // Only the binding moves. What was attested was the old account: it ends here, and the
        // new account has to be attested itself.
        fn recovery_execute(ref self: ContractState, identity: felt252) {
            self.only_owner();
            let recovery = self.recoveries.read(identity);
            let new_account = recovery.new_account;
            assert(new_account != contract_address_const::<0>(), 'NO_RECOVERY');
            assert(get_block_timestamp() >= recovery.ready_at, 'TOO_EARLY');
            // It may have been registered since the proposal.
            assert(self.identities.read(new_account) == 0, 'ACCOUNT_TAKEN');
            let old_account = self.accounts.read(identity);
            self.clear_recovery(identity);
            self.identities.write(old_account, 0);
            self.accounts.write(identity, new_account);
            self.identities.write(new_account, identity);
            let (id, attestation) = self.current_attestation(old_account);
            if attestation.account == old_account && !attestation.revoked {
                self.mark_revoked(id, attestation, 'RECOVERED');
            }
            self.emit(RecoveryExecuted { identity, old_account, new_account });
        }
        fn recovery_cancel(ref self: ContractState, identity: felt252) {
            self.only_owner();
            let recovery = self.recoveries.read(identity);
            assert(recovery.new_account != contract_address_const::<0>(), 'NO_RECOVERY');
            self.clear_recovery(identity);
            self.emit(RecoveryCancelled { identity });
        }
    }
}
