//! Compiles libzmq 4.3.5 when the feature `libzmq` is on (about 30 s, once; no cmake).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Draft API: ZMQ_ROUTER_NOTIFY tells when a peer comes and goes, which nothing else does by routing id.
    #[cfg(feature = "libzmq")]
    zeromq_src::Build::new().enable_draft(true).build();
}
