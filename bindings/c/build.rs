//! What the linker is told about the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The number is that of TICKETING_ABI_VERSION; a program that was installed and
        // linked finds no library if it is not.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libticketing.so.1");
        // A broker has a thread: its code must not go away under it.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
