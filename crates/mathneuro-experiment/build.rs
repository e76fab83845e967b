//! Lets this package's tests find libtorch by rpath, with no environment variable set.

fn main() {
    // torch-sys says where it found libtorch; only its direct dependents are told.
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
