//! A record of the security policy: refused, or read the same again after it is written, and compiled.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use security::{Change, Policy, Slot, SlotKey, Slots};

fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(key) = SlotKey::read(bytes.clone()) {
        assert_eq!(SlotKey::read(key.encode()), Ok(key));
    }
    let Ok(slot) = Slot::read(bytes) else { return };
    assert_eq!(Slot::read(slot.encode()).as_ref(), Ok(&slot));
    let mut slots = Slots::default();
    slots.apply(&[Change::Put(slot)]).expect("one record is within the bound");
    Policy::compile(&slots, 1);
});
