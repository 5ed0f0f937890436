//! CUDA libraries that a job would load, looked at without one.

use super::{layer_of, open_library, search, symbols};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A library that was found.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) path: PathBuf,
    /// As in the column `layer` of `cuda_calls`.
    pub(crate) layer: &'static str,
    /// How many of its functions can be recorded, or why none.
    pub(crate) functions: Result<usize, String>,
}

/// The libraries that a command with this environment will probably load.
pub(crate) fn libraries(environment: &[(OsString, OsString)]) -> Vec<Installed> {
    search::libraries(environment)
        .into_iter()
        .filter_map(|path| look_at(&path))
        .collect()
}

fn look_at(path: &Path) -> Option<Installed> {
    let layer = layer_of(path)?;
    let functions = open_library(path)
        .map_err(|error| format!("cannot open it: {error}"))
        .and_then(|file| symbols::functions(&file, layer).map_err(|error| error.to_string()));
    Some(Installed {
        path: path.to_owned(),
        layer: layer.name(),
        functions: functions.map(|functions| functions.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::cudart;

    #[test]
    fn a_library_is_looked_at_and_whatever_only_has_its_name_is_refused() {
        let stand_in = look_at(&cudart::stand_in()).unwrap();
        assert!(stand_in.functions.unwrap() > 5);

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("libcudart.so.1"), "no library").unwrap();
        std::fs::write(path("libcudart.so.2"), "").unwrap();
        std::fs::create_dir(path("libcudart.so.3")).unwrap();
        let pipe = std::ffi::CString::new(path("libcudart.so.4").to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        for number in 1..=5 {
            let library = look_at(&path(&format!("libcudart.so.{number}"))).unwrap();
            assert!(library.functions.is_err(), "{library:?}");
        }
        assert!(look_at(&path("libother.so")).is_none());
    }
}
