//! The library is installed outside the tree and used from there, as its users do.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use ticketing_test_support::Server;

use crate::tool::{folder, has, libs, output, passes, tests};

fn install() -> TempDir {
    let prefix = tempfile::tempdir().unwrap();
    let mut make = Command::new("make");
    make.arg("--silent").arg("-C").arg(folder()).arg("install");
    make.arg(format!("PREFIX={}", prefix.path().display())).arg(format!("LIBS={}", libs().display()));
    passes(&mut make);
    prefix
}

fn pkg_config(prefix: &Path, options: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(options).arg("ticketing");
    output(&mut command).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_program_is_compiled_with_pkg_config() {
    let (prefix, server) = (install(), Server::start(&[]));
    let address = server.addr().to_string();
    let program = prefix.path().join("program");
    assert_eq!(pkg_config(prefix.path(), &["--modversion"]), [env!("CARGO_PKG_VERSION")]);

    let mut gcc = Command::new("gcc");
    gcc.arg(tests().join("live.c")).arg("-pthread").arg("-o").arg(&program);
    passes(gcc.args(pkg_config(prefix.path(), &["--cflags", "--libs"])));
    passes(Command::new(&program).env("LD_LIBRARY_PATH", prefix.path().join("lib")).arg(&address));

    // With the shared library out of the way.
    fs::remove_file(prefix.path().join("lib/libticketing.so")).unwrap();
    fs::remove_file(prefix.path().join("lib/libticketing.so.1")).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg(tests().join("live.c")).arg("-pthread").arg("-o").arg(&program);
    passes(gcc.args(pkg_config(prefix.path(), &["--cflags", "--libs", "--static"])));
    passes(Command::new(&program).arg(&address));
}

#[test]
fn a_program_is_compiled_with_cmake() {
    if !has("cmake") {
        eprintln!("skipped: cmake is not installed");
        return;
    }
    let (prefix, server) = (install(), Server::start(&[]));
    let source = prefix.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::copy(tests().join("live.c"), source.join("live.c")).unwrap();
    fs::copy(tests().join("check.h"), source.join("check.h")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    fs::write(
        source.join("CMakeLists.txt"),
        format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(live C)\nfind_package(Threads REQUIRED)\n\
             find_package(ticketing {version} REQUIRED)\n\
             add_executable(live live.c)\ntarget_link_libraries(live ticketing::ticketing Threads::Threads)\n\
             add_executable(live_static live.c)\ntarget_link_libraries(live_static ticketing::static Threads::Threads)\n"
        ),
    )
    .unwrap();
    let build = prefix.path().join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(&build);
    passes(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display())));
    passes(Command::new("cmake").arg("--build").arg(&build));
    for program in ["live", "live_static"] {
        passes(Command::new(build.join(program)).arg(server.addr().to_string()));
    }
}
