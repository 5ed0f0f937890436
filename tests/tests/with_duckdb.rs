//! `scripts/with-duckdb` takes the library that it says it takes, and refuses what it should.
//! The script runs in a folder of its own, with stand-ins for npm, cargo and the system's library list.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

const TARBALL: &str = "duckdb-node-bindings-linux-x64-1.5.6-r.1.tgz";

/// A process that one test forks holds, until it executes its program, the scripts open that another
/// test is writing, and a script that is open for writing cannot be executed: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A folder with a copy of the script and stand-ins for the programs that it calls.
struct Sandbox {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Sandbox {
    /// Nothing is installed and nothing can be fetched.
    fn new() -> Sandbox {
        let sandbox = Sandbox {
            folder: tempfile::tempdir().unwrap(),
            // A test that failed leaves nothing behind that the next one could see.
            _turn: ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner),
        };
        for folder in ["scripts", "bin", "home"] {
            fs::create_dir(sandbox.path(folder)).unwrap();
        }
        fs::copy(
            ingero_testkit::repository().join("scripts/with-duckdb"),
            sandbox.path("scripts/with-duckdb"),
        )
        .unwrap();
        sandbox.checksums("0", "0");
        sandbox.program("npm", "echo no network >&2; exit 1");
        sandbox.program("pkg-config", "exit 1");
        sandbox.program("ldconfig", "exit 0");
        sandbox.program(
            "cargo",
            r#"[ -z "${DUCKDB_DOWNLOAD_LIB:-}" ] || { echo "Failed to set up libduckdb: no route"; exit 101; }
               echo "cargo $* with ${DUCKDB_LIB_DIR:-no folder}""#,
        );
        sandbox
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn checksums(&self, tarball: &str, library: &str) {
        let lines = format!("{tarball}  {TARBALL}\n{library}  libduckdb.so\n");
        fs::write(self.path("scripts/duckdb.sha256"), lines).unwrap();
    }

    /// Makes a library that reports `version`, in `folder`.
    fn library(&self, folder: &str, version: &str) -> PathBuf {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("duckdb.c"), folder.join("libduckdb.so"));
        let code = format!("const char *duckdb_library_version(void) {{ return \"{version}\"; }}");
        fs::write(&source, code).unwrap();
        run(Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]));
        library
    }

    /// Lets `npm pack` deliver a package with the library in it; returns the package and the library.
    fn npm_package(&self) -> (PathBuf, PathBuf) {
        let library = self.library("npm/package", "v1.5.6");
        let tarball = self.path(TARBALL);
        run(Command::new("tar")
            .arg("-czf")
            .arg(&tarball)
            .arg("-C")
            .arg(self.path("npm"))
            .arg("package/libduckdb.so"));
        self.program("npm", &format!("cp {} .", tarball.display()));
        (tarball, library)
    }

    fn with_duckdb(&self, variables: &[(&str, &Path)], command: &[&str]) -> Output {
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        Command::new(self.path("scripts/with-duckdb"))
            .args(command)
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env_remove("XDG_CACHE_HOME")
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("DUCKDB_LIB_DIR")
            .env_remove("DUCKDB_DOWNLOAD_LIB")
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }

    /// Asserts that the command ran with a library, that the script said `taken`, and that the library
    /// lies where the programs look for it.
    fn assert_takes(&self, variables: &[(&str, &Path)], taken: &str) {
        let output = self.with_duckdb(variables, &["cargo", "test"]);
        let said = stderr(&output);
        assert!(output.status.success() && said.contains(taken), "{said}");
        let ran = String::from_utf8(output.stdout).unwrap();
        assert!(
            ran.starts_with("cargo test with /"),
            "no library for cargo: {ran}"
        );
        assert!(self.path("target/release/libduckdb.so").exists());
    }

    /// Asserts that the script refuses, says `why`, and neither runs the command nor places a library.
    fn assert_refuses(&self, variables: &[(&str, &Path)], why: &str) {
        let output = self.with_duckdb(variables, &["cargo", "test"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(output.stdout.is_empty(), "the command ran");
        assert!(!self.path("target/release/libduckdb.so").exists());
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn takes_the_folder_of_the_user() {
    let sandbox = Sandbox::new();
    let library = sandbox.library("mine", "v1.5.6");
    let folder = library.parent().unwrap();
    sandbox.assert_takes(&[("DUCKDB_LIB_DIR", folder)], "from DUCKDB_LIB_DIR");
}

#[test]
fn refuses_another_version_in_the_folder_of_the_user() {
    let sandbox = Sandbox::new();
    let library = sandbox.library("mine", "v1.4.0");
    let folder = library.parent().unwrap();
    sandbox.assert_refuses(
        &[("DUCKDB_LIB_DIR", folder)],
        "not DuckDB 1.5.6, but: 1.4.0",
    );
}

#[test]
fn refuses_a_folder_without_a_library() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("home");
    sandbox.assert_refuses(
        &[("DUCKDB_LIB_DIR", &folder)],
        "where there is no libduckdb.so",
    );
}

#[test]
fn takes_the_installed_library_of_the_right_version() {
    let sandbox = Sandbox::new();
    let old = sandbox.library("usr-local", "v1.4.0");
    let right = sandbox.library("usr", "v1.5.6");
    let listing = [&old, &right]
        .map(|path| {
            format!(
                r"printf '\tlibduckdb.so (libc6,x86-64) => {}\n'",
                path.display()
            )
        })
        .join("\n");
    sandbox.program("ldconfig", &listing);
    sandbox.assert_takes(&[], &format!("{}, installed", right.display()));
    let said = stderr(&sandbox.with_duckdb(&[], &["true"]));
    assert!(
        said.contains(&format!("passing over {}", old.display())),
        "{said}"
    );
}

#[test]
fn fetches_from_npm_once() {
    let sandbox = Sandbox::new();
    let (tarball, library) = sandbox.npm_package();
    sandbox.checksums(&sha256(&tarball), &sha256(&library));
    sandbox.assert_takes(&[], "fetched from npm, checksum correct");
    sandbox.program("npm", "exit 1");
    sandbox.assert_takes(&[], "fetched from npm before");
}

#[test]
fn refuses_a_package_with_a_wrong_checksum() {
    let sandbox = Sandbox::new();
    let (_, library) = sandbox.npm_package();
    sandbox.checksums("0", &sha256(&library));
    sandbox.assert_refuses(&[], "does not have the checksum");
    assert!(!sandbox.path("home/.cache").exists(), "something was kept");
}

#[test]
fn refuses_a_damaged_copy_in_the_cache() {
    let sandbox = Sandbox::new();
    let (tarball, library) = sandbox.npm_package();
    sandbox.checksums(&sha256(&tarball), &sha256(&library));
    sandbox.assert_takes(&[], "fetched from npm");
    fs::remove_dir_all(sandbox.path("target")).unwrap();
    let kept = sandbox.path("home/.cache/ingero/duckdb-1.5.6/libduckdb.so");
    fs::write(&kept, "damaged").unwrap();
    sandbox.assert_refuses(&[], "is damaged");
}

#[test]
fn takes_what_the_crate_downloads() {
    let sandbox = Sandbox::new();
    let library = sandbox.library("release", "v1.5.6");
    sandbox.checksums("0", &sha256(&library));
    let download = sandbox.path("target/duckdb-download/x86_64/1.5.6");
    sandbox.program(
        "cargo",
        &format!(
            r#"if [ "${{DUCKDB_DOWNLOAD_LIB:-}}" = 1 ]; then mkdir -p {0} && cp {1} {0}
               else echo "cargo $* with $DUCKDB_LIB_DIR"; fi"#,
            download.display(),
            library.display()
        ),
    );
    sandbox.assert_takes(&[], "downloaded by the crate, checksum correct");
    fs::remove_file(sandbox.path("target/release/libduckdb.so")).unwrap();
    sandbox.checksums("0", "0");
    sandbox.assert_refuses(
        &[("DUCKDB_DOWNLOAD_LIB", Path::new("1"))],
        "does not have the checksum",
    );
}

#[test]
fn compiles_duckdb_where_nothing_can_be_had() {
    let sandbox = Sandbox::new();
    let output = sandbox.with_duckdb(&[], &["cargo", "test", "--release", "--", "a_test"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    for expected in ["no network", "no route", "compiled from source"] {
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "cargo test --features bundled --release -- a_test with no folder\n"
    );
}

#[test]
fn passes_on_the_exit_status_and_names_what_was_skipped() {
    let sandbox = Sandbox::new();
    let library = sandbox.library("mine", "v1.5.6");
    let folder = library.parent().unwrap();
    let command = r#"echo "skipped: some_test: needs root" >>"$INGERO_SKIPPED_TESTS"; exit 7"#;
    let output = sandbox.with_duckdb(&[("DUCKDB_LIB_DIR", folder)], &["sh", "-c", command]);
    assert_eq!(output.status.code(), Some(7));
    let said = stderr(&output);
    assert!(
        said.contains("tests that did not run on this machine (1)"),
        "{said}"
    );
    assert!(said.contains("some_test: needs root"), "{said}");
}
