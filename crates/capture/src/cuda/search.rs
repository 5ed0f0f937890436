//! CUDA libraries that a command's environment points to, before the command runs: a program may call
//! CUDA within microseconds of loading the library.

use super::calls::Layer;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where the driver lies in containers, with CUDA's compatibility package, and under WSL, also where the
/// loader's cache does not name it.
const DRIVER_FOLDERS: [&str; 4] = [
    "/usr/local/nvidia/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/usr/lib/wsl/lib",
];

/// The libraries that a command with this environment will probably load.
pub(crate) fn libraries(environment: &[(OsString, OsString)]) -> BTreeSet<PathBuf> {
    let variable = |name: &str| {
        environment
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_os_str())
    };
    let paths =
        |name: &str| variable(name).map(|value| std::env::split_paths(value).collect::<Vec<_>>());

    let mut found = BTreeSet::new();
    // Whatever a variable is for: one that names such a file is about to have it loaded.
    for (_, value) in environment {
        found.extend(std::env::split_paths(value).filter(|path| is_cuda_library(path)));
    }
    found.extend(
        std::fs::read("/etc/ld.so.cache")
            .iter()
            .flat_map(|cache| in_loader_cache(cache)),
    );
    for folder in paths("LD_LIBRARY_PATH").unwrap_or_default() {
        found.extend(in_folder(&folder));
    }
    for folder in DRIVER_FOLDERS {
        found.extend(in_folder(Path::new(folder)));
    }
    let mut prefixes: BTreeSet<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(variable)
        .map(PathBuf::from)
        .collect();
    for folder in paths("PATH").unwrap_or_default() {
        prefixes.extend(python_prefixes(&folder));
    }
    prefixes.extend(variable("HOME").map(|home| Path::new(home).join(".local")));
    for prefix in prefixes {
        found.extend(under_python(&prefix));
    }
    // The same file by several names is the same library.
    found
        .into_iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect()
}

/// CUDA libraries in a folder.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    entries(folder)
        .into_iter()
        .filter(|path| is_cuda_library(path))
        .collect()
}

fn is_cuda_library(path: &Path) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .and_then(Layer::of_file_name)
        .is_some()
}

/// The paths in the dynamic loader's cache are texts ended by zeros, whatever its version.
fn in_loader_cache(cache: &[u8]) -> Vec<PathBuf> {
    cache
        .split(|byte| *byte == 0)
        .filter(|text| text.starts_with(b"/"))
        .map(|text| PathBuf::from(OsStr::from_bytes(text)))
        .filter(|path| is_cuda_library(path))
        .collect()
}

/// Where the Python in a folder of programs keeps its packages: beside the link and beside the program.
fn python_prefixes(folder: &Path) -> Vec<PathBuf> {
    let python = folder.join("python3");
    let Ok(program) = python.canonicalize() else {
        return Vec::new();
    };
    [python, program]
        .iter()
        .filter_map(|path| Some(path.parent()?.parent()?.to_owned()))
        .collect()
}

/// CUDA libraries of a Python installation: of Conda, of NVIDIA's wheels, and inside PyTorch's older ones.
fn under_python(prefix: &Path) -> Vec<PathBuf> {
    let library = prefix.join("lib");
    let mut folders = Vec::new();
    for python in entries(&library) {
        if !python
            .file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"python"))
        {
            continue;
        }
        for packages in [python.join("site-packages"), python.join("dist-packages")] {
            folders.push(packages.join("torch/lib"));
            folders.extend(
                entries(&packages.join("nvidia"))
                    .into_iter()
                    .map(|package| package.join("lib")),
            );
        }
    }
    folders.push(library);
    folders
        .iter()
        .flat_map(|folder| in_folder(folder))
        .collect()
}

/// What is in a folder; nothing if it is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: PathBuf) -> PathBuf {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        path.canonicalize().unwrap()
    }

    #[test]
    fn libraries_are_found_where_the_environment_points() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let expected: BTreeSet<PathBuf> = [
            "own/libcudart.so",
            "extra/libcudart.so.11.0",
            "extra/libcuda.so.1",
            "venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12",
            "py/lib/python3.9/site-packages/torch/lib/libcudart-d0da41ae.so.11.0",
        ]
        .map(|path| touch(root.join(path)))
        .into();
        touch(root.join("extra/libother.so"));
        touch(root.join("py/bin/python3"));
        let environment: Vec<(OsString, OsString)> = [
            ("SOME_LIBRARY", "own/libcudart.so"),
            ("LD_LIBRARY_PATH", "extra"),
            ("VIRTUAL_ENV", "venv"),
            ("PATH", "py/bin"),
        ]
        .map(|(name, path)| (name.into(), root.join(path).into()))
        .into();
        let found = libraries(&environment);
        // The machine's own loader cache may name more.
        let found: BTreeSet<_> = found
            .into_iter()
            .filter(|path| path.starts_with(root.canonicalize().unwrap()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_loader_cache_is_searched_for_paths() {
        let cache = b"glibc-ld.so.cache1.1\x00\x01\x02libcudart.so.12\x00/usr/lib/libcudart.so.12\x00/lib/libc.so.6\x00";
        assert_eq!(
            in_loader_cache(cache),
            [PathBuf::from("/usr/lib/libcudart.so.12")]
        );
    }
}
