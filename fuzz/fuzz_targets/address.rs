//! Addresses with a host by name or number, as options and the metadata log have them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use os::{ADDRESS_BYTES_MAX, Address};

fuzz_target!(|text: &str| {
    let Ok(address) = text.parse::<Address>() else { return };
    assert!(address.as_str().len() <= ADDRESS_BYTES_MAX);
    assert_eq!(address.to_string().parse::<Address>().as_ref(), Ok(&address), "it is normalised");
    assert_eq!(address.with_port(address.port()), address);
    assert!(address.name().is_none() || address.number().is_none());
});
