//! Compiles and runs programs in C.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn tests() -> PathBuf {
    folder().join("tests")
}

pub(crate) fn include() -> PathBuf {
    folder().join("include")
}

/// Where the libraries are.
pub(crate) fn libs() -> &'static Path {
    static LIBS: OnceLock<PathBuf> = OnceLock::new();
    LIBS.get_or_init(|| {
        if let Some(libs) = env::var_os("TICKETING_C_LIBS") {
            return libs.into();
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let here = env::current_exe().unwrap();
        let profile = here.ancestors().find(|folder| folder.join(".fingerprint").is_dir()).unwrap();
        let mut build = Command::new(cargo);
        build.current_dir(folder()).args(["build", "--quiet", "--package", "ticketing-c", "--target-dir"]);
        passes(build.arg(profile.parent().unwrap()));
        profile.to_owned()
    })
}

pub(crate) fn shared_library() -> PathBuf {
    libs().join("libticketing_c.so")
}

/// Whether a tool is there.
pub(crate) fn has(tool: &str) -> bool {
    let mut probe = Command::new(tool);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

#[track_caller]
pub(crate) fn passes(command: &mut Command) {
    let _ = output(command);
}

/// What a command that must succeed writes.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// What looks at the memory meanwhile.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Check {
    Nothing,
    Valgrind,
    /// `AddressSanitizer`, with its search for leaks, and that for undefined behaviour.
    Addresses,
}

impl Check {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Valgrind, Self::Addresses];
}

/// A program of the folder of tests.
pub(crate) struct Program {
    source: PathBuf,
    check: Check,
    folder: TempDir,
}

/// One that runs.
pub(crate) struct Running {
    child: Child,
    output: std::cell::RefCell<BufReader<ChildStdout>>,
    _folder: TempDir,
}

impl Program {
    pub(crate) fn new(source: impl AsRef<Path>) -> Self {
        let source = tests().join(source);
        Self { source, check: Check::Nothing, folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn check(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// Compiles it, and gives the command that runs it.
    pub(crate) fn command(&self) -> Command {
        let program = self.folder.path().join("program");
        let is_cpp = self.source.extension().is_some_and(|extension| extension == "cpp");
        let mut compiler = Command::new(if is_cpp { "g++" } else { "gcc" });
        compiler.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-g", "-O1", "-pthread"]);
        if self.check == Check::Addresses {
            compiler.arg("-fsanitize=address,undefined").arg("-fno-sanitize-recover=all");
        }
        compiler.arg("-I").arg(include()).arg("-I").arg(tests()).arg(&self.source).arg("-o").arg(&program);
        // By the name that it will be looked for when the program starts.
        let soname = self.folder.path().join("libticketing.so.1");
        let _ = std::os::unix::fs::symlink(shared_library(), soname);
        passes(
            compiler
                .arg(shared_library())
                .arg("-lm")
                .arg(format!("-Wl,-rpath,{}", self.folder.path().display())),
        );
        if self.check == Check::Valgrind {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--fair-sched=yes"]);
            valgrind.arg("--errors-for-leak-kinds=definite,possible");
            valgrind.arg(format!("--suppressions={}", tests().join("valgrind.supp").display())).arg(program);
            valgrind
        } else {
            Command::new(program)
        }
    }

    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        output(self.command().args(arguments))
    }

    /// How it ends, and what it says on its way.
    pub(crate) fn ends(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let output = self.command().args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status, said.into_owned())
    }

    pub(crate) fn start(self, arguments: &[&str]) -> Running {
        let mut command = self.command();
        let mut child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).into();
        Running { child, output, _folder: self.folder }
    }
}

impl Running {
    #[track_caller]
    pub(crate) fn wait_for(&self, line: &str) {
        let mut said = String::new();
        self.output.borrow_mut().read_line(&mut said).unwrap();
        assert_eq!(said.trim_end(), line);
    }

    #[track_caller]
    pub(crate) fn passes(mut self) {
        let mut said = String::new();
        self.output.borrow_mut().read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        eprintln!("{said}");
    }
}
