//! Compiles what stands between the adapter of WiredTiger and its library, if a program is to have it.

fn main() {
    println!("cargo::rerun-if-changed=src/wiredtiger/shim.c");
    #[cfg(feature = "wiredtiger")]
    {
        cc::Build::new()
            .file("src/wiredtiger/shim.c")
            .warnings_into_errors(true)
            .compile("annulet_wiredtiger");
        println!("cargo::rustc-link-lib=wiredtiger");
    }
}
